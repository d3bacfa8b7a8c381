"""LSF as a source of facts about jobs."""
