"""Problems: what is minimized and measured, from supervised losses to adversarial ones."""
