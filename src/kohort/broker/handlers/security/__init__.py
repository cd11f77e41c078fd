"""The handlers of requests about security.

client_quotas      DescribeClientQuotas, AlterClientQuotas
sasl               SaslHandshake and SaslAuthenticate after the authentication
scram_credentials  DescribeUserScramCredentials, AlterUserScramCredentials
"""
