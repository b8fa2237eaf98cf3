//! Regions: sets of combinations of cells, as disjoint boxes of conditions.

use std::collections::{BTreeMap, BTreeSet};

use super::cells::Partition;

/// The chosen cells of each input, in the order of the partitions.
type CellBox = Vec<BTreeSet<usize>>;

/// Returns conditions that together hold for exactly these combinations, at most one of them for each. A combination
/// has the index of a cell for each partition.
pub fn describe_region(partitions: &[Partition], combinations: &[Vec<usize>]) -> Vec<String> {
    let boxes: Vec<CellBox> =
        combinations.iter().map(|cells| cells.iter().map(|cell| BTreeSet::from([*cell])).collect()).collect();
    let count = partitions.len();
    let order: Vec<usize> = (0..count).collect();
    let reversed: Vec<usize> = (0..count).rev().collect();
    let forward = merge_boxes(boxes.clone(), &order);
    let backward = merge_boxes(boxes, &reversed);
    let boxes = if backward.len() < forward.len() { backward } else { forward };
    boxes.iter().map(|one| describe_box(partitions, one)).collect()
}

/// Merges boxes that differ in one input only, input by input, until nothing changes.
fn merge_boxes(mut boxes: Vec<CellBox>, order: &[usize]) -> Vec<CellBox> {
    loop {
        let before = boxes.len();
        for at in order {
            let mut merged: BTreeMap<CellBox, BTreeSet<usize>> = BTreeMap::new();
            for mut one in boxes {
                let own = one.get_mut(*at).map(std::mem::take).unwrap_or_default();
                merged.entry(one).or_default().extend(own);
            }
            boxes = merged
                .into_iter()
                .map(|(mut one, own)| {
                    if let Some(slot) = one.get_mut(*at) {
                        *slot = own;
                    }
                    one
                })
                .collect();
        }
        if boxes.len() == before {
            return boxes;
        }
    }
}

fn describe_box(partitions: &[Partition], cells: &CellBox) -> String {
    let terms: Vec<String> =
        partitions.iter().zip(cells).filter_map(|(partition, chosen)| partition.describe(chosen)).collect();
    if terms.is_empty() { "true".to_owned() } else { terms.join(" && ") }
}
