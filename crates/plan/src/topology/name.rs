//! The names of the topologies that Carole can make by itself.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::{PlanError, excerpt};
use crate::layout::HostLayout;

/// A topology by name. Written `binary-tree-star`; KungFu's `BINARY_TREE_STAR` is read too.
///
/// ```
/// use carole_plan::TopologyName;
///
/// assert_eq!("BINARY_TREE_STAR".parse(), Ok(TopologyName::BinaryTreeStar));
/// assert_eq!(TopologyName::BinaryTreeStar.to_string(), "binary-tree-star");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum TopologyName {
    /// Every rank to rank 0.
    Star,
    /// One star of stars a host: every rank to the first of its host, these to each in turn.
    MultiStar,
    /// One chain a rank, each ending where it starts to spread.
    Ring,
    /// One star a rank.
    Clique,
    /// Every rank to the first of its host, these to rank 0.
    Tree,
    /// A binary tree over the ranks, whatever their hosts.
    BinaryTree,
    /// Every rank to the first of its host, a binary tree over these. KungFu's default.
    #[default]
    BinaryTreeStar,
    /// As `binary-tree-star`, once for every host, the tree turned by one host each time.
    MultiBinaryTreeStar,
    /// `star` on one host, `binary-tree-star` on several.
    Auto,
}

impl TopologyName {
    /// All names, in the order in which they are listed to people.
    pub const ALL: [Self; 9] = [
        Self::Star,
        Self::MultiStar,
        Self::Ring,
        Self::Clique,
        Self::Tree,
        Self::BinaryTree,
        Self::BinaryTreeStar,
        Self::MultiBinaryTreeStar,
        Self::Auto,
    ];

    /// The name as it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Star => "star",
            Self::MultiStar => "multi-star",
            Self::Ring => "ring",
            Self::Clique => "clique",
            Self::Tree => "tree",
            Self::BinaryTree => "binary-tree",
            Self::BinaryTreeStar => "binary-tree-star",
            Self::MultiBinaryTreeStar => "multi-binary-tree-star",
            Self::Auto => "auto",
        }
    }

    /// The name that `auto` stands for on this layout; every other name stands for itself.
    #[must_use]
    pub fn resolve(self, layout: &HostLayout) -> Self {
        match self {
            Self::Auto if layout.host_count() > 1 => Self::BinaryTreeStar,
            Self::Auto => Self::Star,
            named => named,
        }
    }
}

impl fmt::Display for TopologyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for TopologyName {
    type Err = PlanError;

    fn from_str(text: &str) -> Result<Self, PlanError> {
        let wanted = text.to_ascii_lowercase().replace('_', "-");
        Self::ALL
            .into_iter()
            .find(|name| name.as_str() == wanted)
            .ok_or_else(|| PlanError::UnknownTopology {
                found: excerpt(text),
                expected: Self::ALL.map(Self::as_str).join(", "),
            })
    }
}

impl TryFrom<String> for TopologyName {
    type Error = PlanError;

    fn try_from(text: String) -> Result<Self, PlanError> {
        text.parse()
    }
}

impl From<TopologyName> for String {
    fn from(name: TopologyName) -> Self {
        name.as_str().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_read_back_in_both_spellings() {
        for name in TopologyName::ALL {
            assert_eq!(name.to_string().parse(), Ok(name));
            assert_eq!(
                name.to_string().to_uppercase().replace('-', "_").parse(),
                Ok(name)
            );
            let json = serde_json::to_string(&name).unwrap();
            assert_eq!(json, format!("\"{name}\""));
            assert_eq!(serde_json::from_str::<TopologyName>(&json).unwrap(), name);
        }
    }

    #[test]
    fn unknown_name_lists_the_known_ones() {
        assert_eq!(
            "hypercube".parse::<TopologyName>().unwrap_err().to_string(),
            "unknown topology \"hypercube\", expected one of star, multi-star, ring, clique, tree, \
             binary-tree, binary-tree-star, multi-binary-tree-star, auto"
        );
    }

    #[test]
    fn auto_is_a_star_on_one_host_and_a_binary_tree_star_on_several() {
        let one = HostLayout::new([4, 4]);
        let two = HostLayout::new([4, 5]);
        assert_eq!(TopologyName::Auto.resolve(&one), TopologyName::Star);
        assert_eq!(
            TopologyName::Auto.resolve(&two),
            TopologyName::BinaryTreeStar
        );
        assert_eq!(TopologyName::Ring.resolve(&two), TopologyName::Ring);
    }
}
