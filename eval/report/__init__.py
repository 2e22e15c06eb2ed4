"""Speed and quality of step caches on the same prompts: `videoinfer report`."""
