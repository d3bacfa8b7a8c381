"""The executor that submits trials as batch jobs through submitit."""
