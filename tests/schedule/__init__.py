"""Delayed messages: when, where and how often they are delivered."""
