"""Conversation transforms: from what was said to what is searched for."""

from __future__ import annotations

from ragchat.transforms.base import ConversationTransformer
from ragchat.transforms.chain import Chain, chain
from ragchat.transforms.compress import CompressionTransformer
from ragchat.transforms.history import HistoryExpansionTransformer
from ragchat.transforms.hyde import HydeTransformer
from ragchat.transforms.plan import QueryPlanner
from ragchat.transforms.rewrite import RewriteTransformer
from ragchat.transforms.translate import TranslationTransformer

__all__ = [
    "Chain",
    "CompressionTransformer",
    "ConversationTransformer",
    "HistoryExpansionTransformer",
    "HydeTransformer",
    "QueryPlanner",
    "RewriteTransformer",
    "TranslationTransformer",
    "chain",
]
