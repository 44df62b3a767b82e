//! Transformer models by their sizes.

/// Sizes of a decoder-only transformer, from which its parameters and operations follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Model {
    /// Layers.
    pub layers: u32,
    /// Width of a token.
    pub hidden: u32,
    /// Experts of a layer; 0 for a dense model. Each has the size of a dense model's feed-forward part.
    pub experts: u32,
    /// Experts that a token visits.
    pub experts_per_token: u32,
}

/// A model as it is trained: tensor-, pipeline-, data- and expert-parallel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preset {
    /// What it is called.
    pub name: &'static str,
    /// The model.
    pub model: Model,
    /// GPUs that share a layer, stages, replicas, GPUs that share a layer's experts.
    pub degrees: [u32; 4],
}

/// Tokens that a model knows.
const VOCABULARY: u64 = 51_200;

/// The five models with which Lu et al. measured training (SIGCOMM 2025, section 8.2), on 1,024 GPUs. Names and degrees are
/// theirs; layers and widths are those that models of the name have as a rule (Brown et al. 2020; Touvron et al. 2023), and those of
/// the MoE model, of which nothing is published, are ours.
pub const PRESETS: [Preset; 5] = [
    Preset { name: "gpt-7b", model: dense(32, 4096), degrees: [1, 1, 1024, 1] },
    Preset { name: "gpt-13b", model: dense(40, 5120), degrees: [4, 1, 256, 1] },
    Preset { name: "gpt-65b", model: dense(80, 8192), degrees: [8, 4, 32, 1] },
    Preset { name: "gpt-175b", model: dense(96, 12_288), degrees: [8, 8, 16, 1] },
    Preset {
        name: "moe",
        model: Model { layers: 32, hidden: 4096, experts: 8, experts_per_token: 2 },
        degrees: [1, 1, 1024, 8],
    },
];

const fn dense(layers: u32, hidden: u32) -> Model {
    Model { layers, hidden, experts: 0, experts_per_token: 1 }
}

impl Model {
    fn square(&self) -> u64 {
        u64::from(self.hidden) * u64::from(self.hidden)
    }

    /// Parameters that every replica has: attention (four matrices of width × width), the feed-forward part (eight) unless
    /// experts have it, embeddings.
    pub fn shared_parameters(&self) -> u64 {
        let matrices = if self.experts == 0 { 12 } else { 4 };
        u64::from(self.layers) * matrices * self.square() + VOCABULARY * u64::from(self.hidden)
    }

    /// Parameters of all experts.
    pub fn expert_parameters(&self) -> u64 {
        u64::from(self.layers) * u64::from(self.experts) * 8 * self.square()
    }

    /// Floating-point operations to take a token forward through the model, in sequences of so many tokens (Narayanan et al.
    /// 2021, appendix). Backward takes twice as many.
    pub fn flops_per_token(&self, sequence: u32) -> u64 {
        let visited = if self.experts == 0 { 1 } else { u64::from(self.experts_per_token) };
        let matrices = 2 * (4 + 8 * visited) * self.square();
        let attention = 4 * u64::from(sequence) * u64::from(self.hidden);
        u64::from(self.layers) * (matrices + attention) + 2 * VOCABULARY * u64::from(self.hidden)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_are_about_as_large_as_they_are_called() {
        for (preset, billions) in PRESETS.iter().zip([7.0, 13.0, 65.0, 175.0, 37.0]) {
            let all = (preset.model.shared_parameters() + preset.model.expert_parameters()) as f64 / 1e9;
            assert!((all / billions - 1.0).abs() < 0.06, "{}: {all:.1} billion", preset.name);
            assert_eq!(preset.degrees[..3].iter().product::<u32>(), 1024);
            // Six operations for each parameter and token, forward and backward, and some more for attention.
            if preset.model.experts == 0 {
                let flops = 3.0 * preset.model.flops_per_token(2048) as f64 / (6e9 * all);
                assert!((1.0..1.2).contains(&flops), "{}: {flops}", preset.name);
            }
        }
    }
}
