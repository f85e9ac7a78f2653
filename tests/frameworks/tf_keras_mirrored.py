"""Fits a line with TensorFlow's MultiWorkerMirroredStrategy and Keras 2, which supports it."""

import tensorflow as tf
import tf_keras as keras


def main() -> None:
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    resolver = strategy.cluster_resolver
    rank, size = resolver.task_id, strategy.num_replicas_in_sync
    with strategy.scope():
        model = keras.Sequential([keras.layers.Dense(1, input_shape=(4,))])
        model.compile(optimizer=keras.optimizers.SGD(0.1), loss="mse")

    inputs = tf.random.Generator.from_seed(1).normal((64, 4))
    targets = tf.reduce_sum(inputs, axis=1, keepdims=True)
    data = tf.data.Dataset.from_tensor_slices((inputs, targets)).batch(32)  # 16 for each of two
    history = model.fit(data, epochs=8, verbose=0)
    losses = history.history["loss"]
    assert losses[-1] < losses[0] / 10, losses

    weights = ", ".join(f"{value:.6f}" for value in model.get_weights()[0].ravel())
    print(f"{resolver.task_type} {rank} of {size}: lower loss, weights {weights}", flush=True)


if __name__ == "__main__":
    main()
