//! Stable Diffusion 1: a text encoder, a U-Net that removes noise from latent images, and a VAE that shows them.

use serde_json::{Value, json};

use super::format::Format::Plain;
use super::module::{Dtype, Module};

/// The widths of the U-Net from its outside to its middle, and of its time and text embeddings.
const UNET: [u64; 4] = [320, 640, 1280, 1280];
const TIME: u64 = 1280;
const TEXT: u64 = 768;
/// The widths of the VAE.
const VAE: [u64; 4] = [128, 256, 512, 512];
/// Channels of a latent image.
const LATENT: u64 = 4;

pub fn unet(dtype: Dtype) -> Module {
    let [outer, .., inner] = UNET;
    let middle = Module::new(dtype).child("attentions.0", transformer(dtype, inner)).layers(
        "resnets",
        0..2,
        &timed(resnet(dtype, inner, inner), inner),
    );
    let model = Module::new(dtype)
        .conv2d("conv_in", LATENT, outer, 3)
        .linear("time_embedding.linear_1", outer, TIME)
        .linear("time_embedding.linear_2", TIME, TIME)
        .child("mid_block", middle)
        .norm("conv_norm_out", outer)
        .conv2d("conv_out", outer, LATENT, 3);
    let model = (0..4).fold(model, |model, n| {
        let inputs = if n == 0 { outer } else { UNET[n - 1] };
        let down = unet_block(dtype, UNET[n], &[inputs, UNET[n]], n < 3);
        let down =
            if n < 3 { down.conv2d("downsamplers.0.conv", UNET[n], UNET[n], 3) } else { down };
        model.child(&format!("down_blocks.{n}"), down)
    });
    (0..4).fold(model, |model, n| model.child(&format!("up_blocks.{n}"), unet_up(dtype, n)))
}

/// A block on the way up. Its input is the output of the block below, concatenated with an output of the way down.
fn unet_up(dtype: Dtype, n: usize) -> Module {
    let width = UNET[3 - n];
    let below = if n == 0 { width } else { UNET[4 - n] };
    let kept = UNET[3_usize.saturating_sub(n + 1)];
    let inputs = [below + width, width + width, width + kept];
    let up = unet_block(dtype, width, &inputs, n > 0);
    if n < 3 { up.conv2d("upsamplers.0.conv", width, width, 3) } else { up }
}

fn unet_block(dtype: Dtype, width: u64, inputs: &[u64], attends: bool) -> Module {
    inputs.iter().enumerate().fold(Module::new(dtype), |block, (n, inputs)| {
        let resnet = timed(resnet(dtype, *inputs, width), width);
        let block = block.child(&format!("resnets.{n}"), resnet);
        if attends {
            block.child(&format!("attentions.{n}"), transformer(dtype, width))
        } else {
            block
        }
    })
}

fn resnet(dtype: Dtype, inputs: u64, outputs: u64) -> Module {
    let resnet = Module::new(dtype)
        .norm("norm1", inputs)
        .conv2d("conv1", inputs, outputs, 3)
        .norm("norm2", outputs)
        .conv2d("conv2", outputs, outputs, 3);
    if inputs == outputs { resnet } else { resnet.conv2d("conv_shortcut", inputs, outputs, 1) }
}

fn timed(resnet: Module, width: u64) -> Module {
    resnet.linear("time_emb_proj", TIME, width)
}

/// Attends to the image, then to the text.
fn transformer(dtype: Dtype, width: u64) -> Module {
    let attention = |inputs| {
        Module::new(dtype)
            .projection("to_q", Plain, width, width)
            .projection("to_k", Plain, inputs, width)
            .projection("to_v", Plain, inputs, width)
            .linear("to_out.0", width, width)
    };
    let block = Module::new(dtype)
        .norm("norm1", width)
        .child("attn1", attention(width))
        .norm("norm2", width)
        .child("attn2", attention(TEXT))
        .norm("norm3", width)
        .linear("ff.net.0.proj", width, 8 * width)
        .linear("ff.net.2", 4 * width, width);
    Module::new(dtype)
        .norm("norm", width)
        .conv2d("proj_in", width, width, 1)
        .child("transformer_blocks.0", block)
        .conv2d("proj_out", width, width, 1)
}

pub fn vae(dtype: Dtype) -> Module {
    let [outer, .., inner] = VAE;
    let coder = |inputs, first, last, outputs| {
        Module::new(dtype)
            .conv2d("conv_in", inputs, first, 3)
            .child("mid_block", vae_middle(dtype, inner))
            .norm("conv_norm_out", last)
            .conv2d("conv_out", last, outputs, 3)
    };
    let encoder = (0..4).fold(coder(3, outer, inner, 2 * LATENT), |encoder, n| {
        let down = vae_block(dtype, VAE[n.max(1) - 1], VAE[n], 2);
        let down = if n < 3 { down.conv2d("downsamplers.0.conv", VAE[n], VAE[n], 3) } else { down };
        encoder.child(&format!("down_blocks.{n}"), down)
    });
    let decoder = (0..4).fold(coder(LATENT, inner, outer, 3), |decoder, n| {
        let width = VAE[3 - n];
        let up = vae_block(dtype, VAE[3.min(4 - n)], width, 3);
        let up = if n < 3 { up.conv2d("upsamplers.0.conv", width, width, 3) } else { up };
        decoder.child(&format!("up_blocks.{n}"), up)
    });
    Module::new(dtype)
        .child("encoder", encoder)
        .child("decoder", decoder)
        .conv2d("quant_conv", 2 * LATENT, 2 * LATENT, 1)
        .conv2d("post_quant_conv", LATENT, LATENT, 1)
}

fn vae_block(dtype: Dtype, inputs: u64, width: u64, resnets: u64) -> Module {
    Module::new(dtype).child("resnets.0", resnet(dtype, inputs, width)).layers(
        "resnets",
        1..resnets,
        &resnet(dtype, width, width),
    )
}

fn vae_middle(dtype: Dtype, width: u64) -> Module {
    let attention = Module::new(dtype)
        .norm("group_norm", width)
        .linear("query", width, width)
        .linear("key", width, width)
        .linear("value", width, width)
        .linear("proj_attn", width, width);
    Module::new(dtype).child("attentions.0", attention).layers(
        "resnets",
        0..2,
        &resnet(dtype, width, width),
    )
}

/// The text half of CLIP.
pub fn text_encoder(dtype: Dtype) -> Module {
    let layer = Module::new(dtype)
        .linear("self_attn.q_proj", TEXT, TEXT)
        .linear("self_attn.k_proj", TEXT, TEXT)
        .linear("self_attn.v_proj", TEXT, TEXT)
        .linear("self_attn.out_proj", TEXT, TEXT)
        .norm("layer_norm1", TEXT)
        .linear("mlp.fc1", TEXT, 4 * TEXT)
        .linear("mlp.fc2", 4 * TEXT, TEXT)
        .norm("layer_norm2", TEXT);
    let model = Module::new(dtype)
        .tensor("embeddings.token_embedding.weight", &[49_408, TEXT])
        .tensor("embeddings.position_embedding.weight", &[77, TEXT])
        .buffer("embeddings.position_ids", Dtype::I64, &[1, 77])
        .layers("encoder.layers", 0..12, &layer)
        .norm("final_layer_norm", TEXT);
    Module::new(dtype).child("text_model", model)
}

/// The components of the pipeline. Three of them have weights; the safety checker has none here.
pub fn pipeline() -> Value {
    json!({
        "_class_name": "StableDiffusionPipeline",
        "_diffusers_version": "0.8.0",
        "feature_extractor": [null, null],
        "safety_checker": [null, null],
        "scheduler": ["diffusers", "PNDMScheduler"],
        "text_encoder": ["transformers", "CLIPTextModel"],
        "tokenizer": ["transformers", "CLIPTokenizer"],
        "unet": ["diffusers", "UNet2DConditionModel"],
        "vae": ["diffusers", "AutoencoderKL"],
    })
}
