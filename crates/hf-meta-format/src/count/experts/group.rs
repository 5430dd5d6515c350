//! The routed experts of one list, and the sums from which their parameters per token follow.

use super::config::ExpertConfig;
use super::position::ExpertPart;
use super::sums::ExpertSums;
use super::{MixtureOfExperts, UnknownActive};

/// The routed experts of one list.
#[derive(Clone, Debug, Default)]
pub(super) struct ExpertGroup {
    /// The parameters of each numbered expert.
    numbered: Vec<u64>,
    /// The number of experts in stacked tensors, which contain all experts.
    stacked: Option<u64>,
    stacked_parameters: u64,
    /// True if two stacked tensors have different numbers of experts.
    has_conflict: bool,
    /// The parameters of tensors that contain the rows of all experts.
    rows: u64,
    /// True if a tensor proves that the group contains experts. Without proof, the group is ignored.
    pub(super) is_proven: bool,
}

impl ExpertGroup {
    /// Returns the number of numbered experts, including the ones that are missing.
    pub(super) fn numbered_len(&self) -> usize {
        self.numbered.len()
    }

    /// Returns whether the group consists of this many numbered experts of equal size.
    pub(super) fn is_list_of(&self, experts: u64) -> bool {
        self.numbered.len() as u64 == experts && common_size(&self.numbered).is_ok()
    }

    /// Adds a tensor; `None` if its expert number is too large.
    pub(super) fn add(&mut self, part: ExpertPart, parameters: u64) -> Option<()> {
        match part {
            ExpertPart::Numbered(number) => {
                let number = usize::try_from(number).ok()?;
                if number >= ExpertSums::MAX_EXPERTS {
                    return None;
                }
                if self.numbered.len() <= number {
                    self.numbered.resize(number + 1, 0);
                }
                let sum = &mut self.numbered[number];
                *sum = sum.saturating_add(parameters);
            }
            ExpertPart::Stacked(experts) => {
                self.has_conflict |= self.stacked.is_some_and(|known| known != experts);
                self.stacked = Some(experts);
                self.stacked_parameters = self.stacked_parameters.saturating_add(parameters);
            }
            ExpertPart::Rows => self.rows = self.rows.saturating_add(parameters),
        }
        Some(())
    }

    /// Adds the experts of a layer to a mixture.
    pub(super) fn add_to(
        &self,
        mixture: &mut MixtureOfExperts,
        config: &ExpertConfig,
        layer: Option<u64>,
        is_chunked: bool,
    ) -> Result<(), UnknownActive> {
        let experts = self.experts(config, layer)?;
        let sets = if is_chunked { Some(vec![experts]) } else { config.set_sizes(experts, layer) };
        let sets = sets.ok_or(UnknownActive::ConflictingExpertCount)?;
        let top_k = config.top_k(layer).ok_or(UnknownActive::MissingTopK)?;
        let top_k = if is_chunked { top_k.min(experts) } else { top_k };
        let in_all = self.stacked_parameters.saturating_add(self.rows);
        let is_divisible = in_all.is_multiple_of(experts) && (in_all == 0 || sets.len() == 1);
        // Experts of equal size belong to one set.
        let is_one_set = sets.len() > 1 && common_size(&self.numbered).is_ok();
        if !is_divisible || is_one_set || sets.iter().any(|&set| top_k > set) {
            return Err(UnknownActive::ConflictingExpertCount);
        }
        let mut numbered = &self.numbered[..];
        for set in sets {
            let length = usize::try_from(set).unwrap_or(usize::MAX).min(numbered.len());
            let (own, others) = numbered.split_at(length);
            let own = common_size(own)?.saturating_add(in_all / experts);
            mixture.add_experts(set, top_k, own);
            numbered = others;
        }
        Ok(())
    }

    /// Returns the number of experts, which is at least 1.
    fn experts(&self, config: &ExpertConfig, layer: Option<u64>) -> Result<u64, UnknownActive> {
        let numbered = (!self.numbered.is_empty()).then_some(self.numbered.len() as u64);
        let shown = match (numbered, self.stacked) {
            (Some(numbered), Some(stacked)) if numbered != stacked => None,
            (numbered, stacked) => Some(numbered.or(stacked)),
        };
        let shown = shown.filter(|_| !self.has_conflict);
        let shown = shown.ok_or(UnknownActive::ConflictingExpertCount)?;
        let experts = shown.or_else(|| config.experts(layer));
        experts.filter(|&experts| experts > 0).ok_or(UnknownActive::MissingExpertCount)
    }
}

/// Returns the number of parameters per expert, which must be the same for all; 0 if there are no experts.
fn common_size(experts: &[u64]) -> Result<u64, UnknownActive> {
    let size = experts.first().copied().unwrap_or_default();
    if experts.contains(&0) {
        return Err(UnknownActive::MissingExperts);
    }
    let is_common = experts.iter().all(|&other| other == size);
    if is_common { Ok(size) } else { Err(UnknownActive::UnequalExperts) }
}
