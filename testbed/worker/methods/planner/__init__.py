"""What a plan of pipeline, data and tensor parallelism is made from: a model's pieces and live links, measured."""
