"""GANs: losses, the turns of their networks, and the showers of calorimeters."""
