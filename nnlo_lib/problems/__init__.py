"""Problems: the losses to minimize and the metrics to measure, supervised and adversarial."""
