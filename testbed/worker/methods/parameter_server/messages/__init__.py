"""The contents of messages: which tensors, by which codec, within which error bound."""
