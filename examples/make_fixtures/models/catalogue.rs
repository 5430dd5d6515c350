//! The repos, each an architecture in a layout.

use serde_json::{Value, json};

use super::format::Format;
use super::llama::{self, LLAMA_8B, LLAMA_70B, MISTRAL_7B};
use super::module::{Dtype, Module};
use super::{
    Model, Sharding, Weights, bert, bloom, deepseek_v3, deepseek_v4, gemma, gpt_neox, gpt_oss,
    gpt2, kimi, roberta, shuffle, stable_diffusion,
};

/// The models that are stored as fixtures.
pub fn fixtures() -> Vec<Model> {
    [documented(), published(), layouts()].into_iter().flatten().collect()
}

/// The models that the documentation of the format and of its clients describes.
pub fn documented() -> Vec<Model> {
    let hashed = |repo, module: Module| Model::new(repo, module).salted(shuffle::hash(repo, 0));
    let bloom = |repo, dtype, hidden, layers| hashed(repo, bloom::model(dtype, hidden, layers));
    vec![
        hashed("gpt2", gpt2::model()).salted(gpt2::SALT),
        hashed("roberta-base", roberta::masked_lm(&roberta::BASE)),
        hashed("Jean-Baptiste/camembert-ner", roberta::tagger(&roberta::CAMEMBERT, 5)),
        hashed("roberta-large", roberta::masked_lm(&roberta::LARGE)),
        hashed("distilbert-base-german-cased", roberta::distilbert(31_102)),
        hashed("EleutherAI/gpt-neox-20b", gpt_neox::model())
            .sharded(Sharding::UpTo(gpt_neox::SHARD_BYTES)),
        bloom("bigscience/bloom-560m", Dtype::F16, 1024, 24),
        bloom("bigscience/bloom", Dtype::BF16, 14_336, 70)
            .sharded(Sharding::By(bloom::part))
            .named(|number, count| format!("_{number:05}-of-{count:05}"))
            .salted(bloom::SALT)
            .document("config.json", bloom::config()),
        bloom("bigscience/bloom-3b", Dtype::F16, 2560, 30),
    ]
}

/// The models of which the tests of huggingface.js tell the parameters, as far as their headers are small.
pub fn published() -> Vec<Model> {
    vec![
        Model::new("google-bert/bert-base-uncased", bert::pretraining(30_522)),
        gpt_oss("openai/gpt-oss-20b", &gpt_oss::GPT_OSS_20B, 5_000_000_000),
        Model::new(
            "unsloth/Meta-Llama-3.1-8B-Instruct-bnb-4bit",
            llama::causal_lm(Dtype::BF16, &LLAMA_8B, llama::nf4),
        )
        .document("config.json", llama::config(&LLAMA_8B, &llama::bitsandbytes())),
        Model::new(
            "RedHatAI/Llama-3.3-70B-Instruct-quantized.w4a16",
            llama::causal_lm(Dtype::BF16, &LLAMA_70B, |_| llama::W4A16),
        )
        .sharded(Sharding::UpTo(5_000_000_000))
        .document("config.json", llama::config(&LLAMA_70B, &llama::w4a16())),
    ]
}

/// The others, which are made when they are asked for.
pub fn large() -> Vec<Model> {
    vec![gpt_oss_120b(), llama_gptq(), deepseek_r1(), kimi_k2_5(), deepseek_v4_pro()]
}

pub fn gpt_oss_120b() -> Model {
    gpt_oss("openai/gpt-oss-120b", &gpt_oss::GPT_OSS_120B, 5_000_000_000)
}

/// The shards are numbered from 0, and the count is the last number.
fn gpt_oss(repo: &'static str, size: &gpt_oss::Size, shard_bytes: u64) -> Model {
    Model::new(repo, gpt_oss::model(size))
        .sharded(Sharding::UpTo(shard_bytes))
        .named(|number, count| format!("-{:05}-of-{:05}", number - 1, count - 1))
        .document("config.json", gpt_oss::config(size))
}

pub fn llama_gptq() -> Model {
    // AutoGPTQ stores biases of zeros.
    let mut config = llama::config(&LLAMA_8B, &llama::gptq());
    config["attention_bias"] = false.into();
    config["mlp_bias"] = false.into();
    Model::new(
        "RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w4a16",
        llama::causal_lm(Dtype::F16, &LLAMA_8B, |_| llama::GPTQ),
    )
    .sharded(Sharding::UpTo(5_000_000_000))
    .document("config.json", config)
}

pub fn deepseek_r1() -> Model {
    Model::new(
        "deepseek-ai/DeepSeek-R1",
        deepseek_v3::with_next_token_prediction(&deepseek_v3::DEEPSEEK_V3),
    )
    .sharded(Sharding::UpTo(deepseek_v3::SHARD_BYTES))
    .named(|number, count| format!("-{number:05}-of-{count:06}"))
    .document("config.json", deepseek_v3::config())
}

pub fn kimi_k2_5() -> Model {
    Model::new("moonshotai/Kimi-K2.5", kimi::model())
        .sharded(Sharding::By(kimi::part))
        .named(|number, count| format!("-{number:05}-of-{count:06}"))
        .document("config.json", kimi::config())
}

pub fn deepseek_v4_pro() -> Model {
    Model::new("deepseek-ai/DeepSeek-V4-Pro", deepseek_v4::model())
        .sharded(Sharding::By(deepseek_v4::part))
        .without_metadata()
        .document("config.json", deepseek_v4::config())
}

/// Repos whose weights are not at `model.safetensors`, or not there alone.
pub fn layouts() -> Vec<Model> {
    let consolidated = || Weights::new("consolidated", llama::consolidated(&MISTRAL_7B));
    let converted = || {
        let module = llama::causal_lm(Dtype::BF16, &MISTRAL_7B, |_| Format::Plain);
        Weights { sharding: Sharding::UpTo(5_000_000_000), ..Weights::new("model", module) }
    };
    vec![
        stable_diffusion(),
        sentence_transformer(),
        Model::empty("Alignment-Lab-AI/ALAI-gemma-7b").with(Weights {
            sharding: Sharding::UpTo(5_000_000_000),
            ..Weights::new("7b/1/model", gemma::model())
        }),
        Model::empty("mistralai/Mistral-7B-v0.3").with(converted()).with(consolidated()),
        Model::empty("example/consolidated").with(consolidated()),
        Model::empty("example/shards-without-index")
            .with(Weights { has_index: false, ..converted() }),
        Model::empty("example/lora")
            .with(Weights::new("adapter_model", llama::lora(&LLAMA_8B, 16)))
            .document("adapter_config.json", adapter()),
        Model::empty("example/lora-without-weights")
            .with(Weights::new("adapter_model", Module::new(Dtype::F32)))
            .document("adapter_config.json", adapter()),
    ]
}

/// Each component of the pipeline in a separate folder, in two precisions.
fn stable_diffusion() -> Model {
    let (whole, half) = (Dtype::F32, Dtype::F16);
    Model::empty("CompVis/stable-diffusion-v1-4")
        .with(Weights::new("text_encoder/model", stable_diffusion::text_encoder(whole)))
        .with(Weights::new("text_encoder/model.fp16", stable_diffusion::text_encoder(half)))
        .with(Weights::new("unet/diffusion_pytorch_model", stable_diffusion::unet(whole)))
        .with(Weights::new("unet/diffusion_pytorch_model.fp16", stable_diffusion::unet(half)))
        .with(Weights::new("vae/diffusion_pytorch_model", stable_diffusion::vae(whole)))
        .with(Weights::new("vae/diffusion_pytorch_model.fp16", stable_diffusion::vae(half)))
        .document("model_index.json", stable_diffusion::pipeline())
}

/// An encoder, and a dense layer in the folder of a later module.
fn sentence_transformer() -> Model {
    let module = |index: u8, name: &str, path: &str| {
        let kind = format!("sentence_transformers.models.{name}");
        json!({ "idx": index, "name": index.to_string(), "path": path, "type": kind })
    };
    Model::new("sentence-transformers/LaBSE", bert::with_position_ids(501_153))
        .with(Weights::new("2_Dense/model", bert::dense()))
        .document("config.json", json!({ "architectures": ["BertModel"], "model_type": "bert" }))
        .document(
            "modules.json",
            json!([
                module(0, "Transformer", ""),
                module(1, "Pooling", "1_Pooling"),
                module(2, "Dense", "2_Dense"),
                module(3, "Normalize", "3_Normalize"),
            ]),
        )
}

fn adapter() -> Value {
    json!({
        "base_model_name_or_path": "meta-llama/Llama-3.1-8B",
        "lora_alpha": 32,
        "peft_type": "LORA",
        "r": 16,
        "target_modules": ["q_proj", "v_proj"],
        "task_type": "CAUSAL_LM",
    })
}
