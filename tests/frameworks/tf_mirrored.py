"""Fits a line with TensorFlow's MultiWorkerMirroredStrategy and a training loop of its own."""

import tensorflow as tf


def main() -> None:
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    resolver = strategy.cluster_resolver
    rank, size = resolver.task_id, strategy.num_replicas_in_sync
    random = tf.random.Generator.from_seed(rank)  # data of its own on every worker
    inputs = random.normal((64, 4))
    targets = tf.reduce_sum(inputs, axis=1, keepdims=True)
    with strategy.scope():
        weight = tf.Variable(tf.zeros((4, 1)), aggregation=tf.VariableAggregation.SUM)

    @tf.function
    def step() -> tf.Tensor:
        def replica() -> tf.Tensor:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((inputs @ weight - targets) ** 2)
            weight.assign_sub(0.1 / size * tape.gradient(loss, weight))
            return loss

        return strategy.reduce(tf.distribute.ReduceOp.MEAN, strategy.run(replica), axis=None)

    losses = [float(step()) for _ in range(20)]
    assert losses[-1] < losses[0] / 10, losses

    weights = ", ".join(f"{value:.6f}" for value in weight.numpy().ravel())
    print(f"{resolver.task_type} {rank} of {size}: lower loss, weights {weights}", flush=True)


if __name__ == "__main__":
    main()
