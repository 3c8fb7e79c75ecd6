"""The pages of the server. They load nothing from elsewhere.

``text`` is how anything gets into a page: the one place that escapes. ``docs`` lists the addresses.
"""
