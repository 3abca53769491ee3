"""Bearer tokens: claims, verification, issuance and signing keys."""
