//! YAML to [`crate::data::Node`] with byte spans, through serde-saphyr and within its budgets.
