"""Many runs at once: what is asked, what is there already, what is made, and what came of it."""
