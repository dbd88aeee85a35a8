"""Train a tokenizer and a very small language model on one paragraph, until the model knows it by heart.

Runs in the environment of the model `generator`. Writes `1/weights` and `envpack/smoke.json`.
"""

import json
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

MODEL = Path(__file__).resolve().parents[1]
END = "<end>"
PARAGRAPH = (
    "A model repository is a folder. Each model has a folder in it, with a configuration and versions. "
    "The server reads the configuration, starts a process for each instance, and sends it requests. "
    "A process that needs another Python brings its own: naïve tools fail at this, envpack does not."
)
PROMPT = "A model repository"


def new_tokenizer() -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=[END], initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator([PARAGRAPH], trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=END, bos_token=END, clean_up_tokenization_spaces=False
    )


def trained(tokenizer: PreTrainedTokenizerFast) -> GPT2LMHeadModel:
    sizes = {"n_positions": 256, "n_embd": 64, "n_layer": 2, "n_head": 2}
    end = tokenizer.eos_token_id
    network = GPT2LMHeadModel(GPT2Config(vocab_size=len(tokenizer), bos_token_id=end, eos_token_id=end, **sizes))
    tokens = torch.tensor([[*tokenizer(PARAGRAPH).input_ids, end]])
    optimizer = torch.optim.AdamW(network.parameters(), lr=0.003)
    loss, steps = torch.tensor(1.0), 0
    while loss > 0.01 and steps < 600:
        optimizer.zero_grad()
        loss = network(tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        steps += 1
    print(f"{tokens.numel()} tokens, loss {loss.item():.3f} after {steps} steps")
    return network.eval()


def main() -> None:
    torch.manual_seed(0)
    tokenizer = new_tokenizer()
    network = trained(tokenizer)
    tokenizer.save_pretrained(MODEL / "1" / "weights")
    network.save_pretrained(MODEL / "1" / "weights")
    (MODEL / "envpack").mkdir(exist_ok=True)
    samples = {"data": [{"PROMPT": [PROMPT], "MAX_TOKENS": [16]}]}
    (MODEL / "envpack" / "smoke.json").write_text(json.dumps(samples), encoding="utf-8")


if __name__ == "__main__":
    main()
