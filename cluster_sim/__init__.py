"""Does speculative decoding pay for your traffic, with which draft length, on how many instances?"""

__version__ = "0.1.0"
