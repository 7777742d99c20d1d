"""Ways to send a gradient in fewer bytes: one paper, one file. Needs torch; no network, file or clock."""
