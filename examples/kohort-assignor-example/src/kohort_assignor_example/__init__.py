"""A partition assignor for kohort."""
