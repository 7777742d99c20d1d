"""The words dashboards are written in: queries, kinds of panels, and the frame around them."""
