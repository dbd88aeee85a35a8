"""A prompt to its continuation, one response for each piece of text."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
import triton_python_backend_utils as pb_utils
from transformers import AutoModelForCausalLM, AutoTokenizer

WEIGHTS = Path(__file__).with_name("weights")
DEFAULT_TOKENS = 32
INCOMPLETE = "\N{REPLACEMENT CHARACTER}"


class TritonPythonModel:
    def initialize(self, args: dict):
        on_gpu = args["model_instance_kind"] == "GPU"
        self.device = torch.device(f"cuda:{args['model_instance_device_id']}" if on_gpu else "cpu")
        self.tokenizer = AutoTokenizer.from_pretrained(WEIGHTS, local_files_only=True)
        self.network = AutoModelForCausalLM.from_pretrained(WEIGHTS, local_files_only=True).to(self.device).eval()

    def execute(self, requests: list) -> None:
        for request in requests:
            sender = request.get_response_sender()
            try:
                self.stream(request, sender)
            except ValueError as error:
                problem = pb_utils.TritonError(str(error), pb_utils.TritonError.INVALID_ARG)
                sender.send(pb_utils.InferenceResponse(error=problem))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

    def stream(self, request, sender) -> None:
        prompt = pb_utils.get_input_tensor_by_name(request, "PROMPT").as_numpy()[0].decode()
        given = pb_utils.get_input_tensor_by_name(request, "MAX_TOKENS")
        count = DEFAULT_TOKENS if given is None else int(given.as_numpy()[0])
        for text in self.pieces(prompt, count):
            if sender.is_cancelled():
                return
            output = pb_utils.Tensor("TEXT", np.array([text.encode()], dtype=np.object_))
            sender.send(pb_utils.InferenceResponse([output]))

    def pieces(self, prompt: str, count: int) -> Iterator[str]:
        """The continuation of a prompt, in pieces that end between two characters."""
        tokens: list[int] = []
        sent = ""
        for token in self.tokens(prompt, count):
            tokens.append(token)
            text = self.tokenizer.decode(tokens)
            if not text.endswith(INCOMPLETE) and text != sent:
                yield text[len(sent) :]
                sent = text

    def tokens(self, prompt: str, count: int) -> Iterator[int]:
        """The most probable continuation, token by token."""
        given = self.tokenizer(prompt, return_tensors="pt").input_ids.to(self.device)
        longest = self.network.config.max_position_embeddings - given.shape[1]
        if given.shape[1] == 0 or longest < 1:
            raise ValueError("the prompt is empty, or too long for this model")
        cache = None
        for _ in range(min(count, longest)):
            with torch.inference_mode():
                step = self.network(given, past_key_values=cache, use_cache=True)
            cache = step.past_key_values
            token = int(step.logits[0, -1].argmax())
            if token == self.tokenizer.eos_token_id:
                return
            yield token
            given = torch.tensor([[token]], device=self.device)
