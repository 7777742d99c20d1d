"""Ways to give a link its delay: one file each, behind `base.DelayShaper`."""
