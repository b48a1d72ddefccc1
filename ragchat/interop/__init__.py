"""Working with other libraries: `langchain`, `llamaindex` and `haystack`, each behind its extra."""
