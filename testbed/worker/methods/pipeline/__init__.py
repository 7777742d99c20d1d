"""An executor of pipelines of our own over point-to-point messages: stages, schedules, a codec at their boundaries, and
layers shared out among ranks. Why not torch's: docs/decisions/0025-a-pipeline-of-our-own.md."""
