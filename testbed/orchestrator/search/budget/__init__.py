"""`longhaul budget`: the least links that give a step time, what is sent over them, and what that costs."""
