//! The parameter tensors of well-known models, shared with `bench/compare`.

use serde::Deserialize;

/// The files, by the name that `--list` takes.
const FILES: [(&str, &str); 2] = [
    (
        "resnet50",
        include_str!("../../../../../bench/lists/resnet50.json"),
    ),
    ("bert", include_str!("../../../../../bench/lists/bert.json")),
];

#[derive(Deserialize)]
struct File {
    tensors: Vec<Tensor>,
}

#[derive(Deserialize)]
struct Tensor {
    elements: usize,
}

/// The names that there are.
pub(super) fn names() -> String {
    FILES.map(|(name, _)| name).join(" or ")
}

/// The lengths of a model's tensors, in elements; `None` for a model that is not known.
pub(super) fn lengths(name: &str) -> Option<Vec<usize>> {
    let (_, text) = FILES.iter().find(|(known, _)| *known == name)?;
    let file: File = serde_json::from_str(text).expect("the lists are part of this program");
    Some(
        file.tensors
            .into_iter()
            .map(|tensor| tensor.elements)
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_models_have_the_parameters_they_are_known_for() {
        for (name, tensors, elements) in [("resnet50", 161, 25_557_032), ("bert", 199, 109_482_240)]
        {
            let lengths = lengths(name).unwrap();
            assert_eq!(
                (lengths.len(), lengths.iter().sum::<usize>()),
                (tensors, elements)
            );
        }
        assert_eq!(lengths("vgg"), None);
    }
}
