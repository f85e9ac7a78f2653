"""Fits a line with TensorFlow's ParameterServerStrategy; the chief tells the workers what to do."""

import tensorflow as tf


def train(resolver: tf.distribute.cluster_resolver.TFConfigClusterResolver) -> None:
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        weight = tf.Variable(tf.zeros((4, 1)))
    assert "/job:ps/" in weight.device, weight.device

    @tf.function
    def step() -> tf.Tensor:
        inputs = tf.random.normal((64, 4))
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((inputs @ weight - tf.reduce_sum(inputs, 1, True)) ** 2)
        weight.assign_sub(0.05 * tape.gradient(loss, weight))
        return loss

    losses = [coordinator.schedule(step) for _ in range(40)]
    coordinator.join()
    losses = [loss.fetch() for loss in losses]
    assert losses[-1] < losses[0] / 10, losses

    jobs = resolver.cluster_spec().as_dict()
    sizes = ", ".join(f"{job}: {len(jobs[job])}" for job in sorted(jobs))
    print(f"chief: lower loss, {sizes}", flush=True)


def main() -> None:
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    job, index = resolver.task_type, resolver.task_id
    if job == "chief":
        train(resolver)
    else:
        server = tf.distribute.Server(resolver.cluster_spec(), job, index, protocol="grpc")
        print(f"{job} {index}: serving", flush=True)
        server.join()  # never returns


if __name__ == "__main__":
    main()
