"""The handlers of requests about security.

sasl               SaslHandshake and SaslAuthenticate after the authentication
scram_credentials  DescribeUserScramCredentials, AlterUserScramCredentials
"""
