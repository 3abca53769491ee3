"""The web pages in Chromium, as their users see them."""
