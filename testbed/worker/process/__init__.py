"""A worker's process: forked, confined, checked, and run from hello to done."""
