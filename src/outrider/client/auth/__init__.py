"""Signing in to protected servers over HTTP.

`authorizer` is what the transports know of it; `steps` holds MCP's own order of steps, pure; `fetching` reads what untrusted parties
point at; `lookup` finds out where one signs in; `messages` are what is sent there; `store` keeps credentials; `browser` lets a person
consent; `flow` ties them together. Tokens and JOSE are authlib's and joserfc's
work, loaded only when somebody signs in.

Spec: 2026-07-28 basic/authorization
"""
