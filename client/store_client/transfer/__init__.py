"""The transfer engine under uploads, downloads and upload areas."""
