"""The closed query grammar, its analysis and its evaluator: pure, no engine."""
