"""A model that is trained, checked and published in one commit with the data it was trained on."""
