"""Kafka's error codes, and the one exception for bytes that do not follow the protocol.

An error code is part of a response; the connection stays open. A `ProtocolError` means unreadable bytes, to which no
response is possible: the reader closes the connection (or, for a record batch inside a readable request, answers with
an error code).

Codes and retriability follow Apache Kafka's `Errors.java`; the texts are ours.
"""

from __future__ import annotations

from enum import IntEnum


class ProtocolError(Exception):
    """Bytes that do not follow the protocol: truncated, overlong, impossible counts, bad UTF-8, bad checksums."""


RETRIABLE = True


class ErrorCode(IntEnum):
    """An error code of a response, with a text for people and whether the client may simply try again."""

    message: str
    retriable: bool

    def __new__(cls, code: int, message: str = "", retriable: bool = False) -> ErrorCode:
        member = int.__new__(cls, code)
        member._value_ = code
        member.message = message
        member.retriable = retriable
        return member

    UNKNOWN_SERVER_ERROR = -1, "The server failed in a way that it did not expect."
    NONE = 0, "No error."
    OFFSET_OUT_OF_RANGE = 1, "The offset lies outside of what the partition holds."
    CORRUPT_MESSAGE = 2, "The records fail their checksum, exceed the valid size or are otherwise damaged.", RETRIABLE
    UNKNOWN_TOPIC_OR_PARTITION = 3, "This server does not have the topic or partition.", RETRIABLE
    INVALID_FETCH_SIZE = 4, "The fetch size is not valid."
    LEADER_NOT_AVAILABLE = 5, "The partition has no leader at present.", RETRIABLE
    NOT_LEADER_OR_FOLLOWER = 6, "This broker does not lead (or follow) the partition.", RETRIABLE
    REQUEST_TIMED_OUT = 7, "The request took longer than it was allowed to.", RETRIABLE
    BROKER_NOT_AVAILABLE = 8, "The broker is not available."
    REPLICA_NOT_AVAILABLE = 9, "The replica is not available on this broker.", RETRIABLE
    MESSAGE_TOO_LARGE = 10, "The message is larger than the server accepts."
    STALE_CONTROLLER_EPOCH = 11, "The controller has moved to another broker."
    OFFSET_METADATA_TOO_LARGE = 12, "The metadata beside the committed offset is too large."
    NETWORK_EXCEPTION = 13, "The connection broke before an answer came.", RETRIABLE
    COORDINATOR_LOAD_IN_PROGRESS = 14, "The coordinator is still reading its log.", RETRIABLE
    COORDINATOR_NOT_AVAILABLE = 15, "There is no coordinator at present.", RETRIABLE
    NOT_COORDINATOR = 16, "This broker does not coordinate the group or transaction.", RETRIABLE
    INVALID_TOPIC_EXCEPTION = 17, "The topic's name is not valid, or the operation is not allowed on this topic."
    RECORD_LIST_TOO_LARGE = 18, "The batch is larger than a segment of the log."
    NOT_ENOUGH_REPLICAS = 19, "Fewer replicas are in sync than the topic demands.", RETRIABLE
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20, "The records were written to fewer replicas than demanded.", RETRIABLE
    INVALID_REQUIRED_ACKS = 21, "The number of acknowledgements must be -1, 0 or 1."
    ILLEGAL_GENERATION = 22, "The generation is not the group's current one."
    INCONSISTENT_GROUP_PROTOCOL = 23, "The member's protocols or protocol type do not fit the group's."
    INVALID_GROUP_ID = 24, "The group id is not valid."
    UNKNOWN_MEMBER_ID = 25, "The group has no such member."
    INVALID_SESSION_TIMEOUT = 26, "The session timeout is outside of the broker's bounds."
    REBALANCE_IN_PROGRESS = 27, "The group is rebalancing: rejoin."
    INVALID_COMMIT_OFFSET_SIZE = 28, "The commit is too large to be stored."
    TOPIC_AUTHORIZATION_FAILED = 29, "Not authorized for the topic."
    GROUP_AUTHORIZATION_FAILED = 30, "Not authorized for the group."
    CLUSTER_AUTHORIZATION_FAILED = 31, "Not authorized for the cluster."
    INVALID_TIMESTAMP = 32, "The record's timestamp is too far from the broker's time."
    UNSUPPORTED_SASL_MECHANISM = 33, "The broker does not offer this SASL mechanism."
    ILLEGAL_SASL_STATE = 34, "The request does not fit the state of the SASL exchange."
    UNSUPPORTED_VERSION = 35, "The server does not speak this version of the API."
    TOPIC_ALREADY_EXISTS = 36, "A topic of this name exists already."
    INVALID_PARTITIONS = 37, "The number of partitions is not valid."
    INVALID_REPLICATION_FACTOR = 38, "The replication factor is below 1 or above the number of brokers."
    INVALID_REPLICA_ASSIGNMENT = 39, "The assignment of replicas is not valid."
    INVALID_CONFIG = 40, "The configuration is not valid."
    NOT_CONTROLLER = 41, "This broker is not the controller.", RETRIABLE
    INVALID_REQUEST = 42, "The request is contradictory or incomplete; the server's log has the reason."
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43, "The broker's message format cannot do what the request asks."
    POLICY_VIOLATION = 44, "A policy forbids the request."
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45, "The batch's sequence number does not follow the last one."
    DUPLICATE_SEQUENCE_NUMBER = 46, "A batch with this sequence number was written before."
    INVALID_PRODUCER_EPOCH = 47, "The producer's epoch is older than the broker's."
    INVALID_TXN_STATE = 48, "The transaction's state does not allow this."
    INVALID_PRODUCER_ID_MAPPING = 49, "The producer id does not belong to this transactional id."
    INVALID_TRANSACTION_TIMEOUT = 50, "The transaction timeout is above the broker's maximum."
    CONCURRENT_TRANSACTIONS = 51, "The producer's previous transaction is not finished yet.", RETRIABLE
    TRANSACTION_COORDINATOR_FENCED = 52, "The transaction coordinator that wrote this marker is no longer current."
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, "Not authorized for the transactional id."
    SECURITY_DISABLED = 54, "Security features are switched off."
    OPERATION_NOT_ATTEMPTED = 55, "The operation was not tried, since another one in the request failed."
    KAFKA_STORAGE_ERROR = 56, "The disk failed.", RETRIABLE
    LOG_DIR_NOT_FOUND = 57, "The broker has no such log directory."
    SASL_AUTHENTICATION_FAILED = 58, "Authentication failed."
    UNKNOWN_PRODUCER_ID = 59, "The broker does not know this producer id."
    REASSIGNMENT_IN_PROGRESS = 60, "The partition is being moved."
    DELEGATION_TOKEN_AUTH_DISABLED = 61, "Delegation tokens are switched off."
    DELEGATION_TOKEN_NOT_FOUND = 62, "There is no such delegation token."
    DELEGATION_TOKEN_OWNER_MISMATCH = 63, "The delegation token belongs to another principal."
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64, "Delegation tokens may not be asked for over this connection."
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65, "Not authorized for the delegation token."
    DELEGATION_TOKEN_EXPIRED = 66, "The delegation token has expired."
    INVALID_PRINCIPAL_TYPE = 67, "The principal's type is not supported."
    NON_EMPTY_GROUP = 68, "The group has members."
    GROUP_ID_NOT_FOUND = 69, "There is no such group."
    FETCH_SESSION_ID_NOT_FOUND = 70, "There is no such fetch session.", RETRIABLE
    INVALID_FETCH_SESSION_EPOCH = 71, "The fetch session's epoch is not the expected one.", RETRIABLE
    LISTENER_NOT_FOUND = 72, "The leader has no listener that matches the one of this request.", RETRIABLE
    TOPIC_DELETION_DISABLED = 73, "Deleting topics is switched off."
    FENCED_LEADER_EPOCH = 74, "The leader epoch is older than the broker's.", RETRIABLE
    UNKNOWN_LEADER_EPOCH = 75, "The leader epoch is newer than the broker's.", RETRIABLE
    UNSUPPORTED_COMPRESSION_TYPE = 76, "The client cannot read the records' compression."
    STALE_BROKER_EPOCH = 77, "The broker's epoch has changed."
    OFFSET_NOT_AVAILABLE = 78, "The leader does not yet know how far its log is safe.", RETRIABLE
    MEMBER_ID_REQUIRED = 79, "Join again with the member id of this answer."
    PREFERRED_LEADER_NOT_AVAILABLE = 80, "The preferred leader is not available.", RETRIABLE
    GROUP_MAX_SIZE_REACHED = 81, "The group has as many members as it may have."
    FENCED_INSTANCE_ID = 82, "Another member has taken over this group instance id."
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, "No replica that may lead is available.", RETRIABLE
    ELECTION_NOT_NEEDED = 84, "The partition needs no election.", RETRIABLE
    NO_REASSIGNMENT_IN_PROGRESS = 85, "The partition is not being moved."
    GROUP_SUBSCRIBED_TO_TOPIC = 86, "A member of the group is subscribed to the topic."
    INVALID_RECORD = 87, "A record breaks a rule of its topic (a compacted topic needs keys, for example)."
    UNSTABLE_OFFSET_COMMIT = 88, "A transaction with offsets of this partition is still open.", RETRIABLE
    THROTTLING_QUOTA_EXCEEDED = 89, "A quota is used up.", RETRIABLE
    PRODUCER_FENCED = 90, "A newer producer uses this transactional id."
    RESOURCE_NOT_FOUND = 91, "The request names something that does not exist."
    DUPLICATE_RESOURCE = 92, "The request names the same thing twice."
    UNACCEPTABLE_CREDENTIAL = 93, "The credential does not meet the rules."
    INCONSISTENT_VOTER_SET = 94, "The voter is not in the expected set of voters."
    INVALID_UPDATE_VERSION = 95, "The version of the update is not valid."
    FEATURE_UPDATE_FAILED = 96, "The feature could not be updated."
    PRINCIPAL_DESERIALIZATION_FAILURE = 97, "The forwarded request's principal cannot be read."
    SNAPSHOT_NOT_FOUND = 98, "There is no such snapshot."
    POSITION_OUT_OF_RANGE = 99, "The position lies outside of the snapshot."
    UNKNOWN_TOPIC_ID = 100, "This server does not have a topic of this id.", RETRIABLE
    DUPLICATE_BROKER_REGISTRATION = 101, "The broker id is in use."
    BROKER_ID_NOT_REGISTERED = 102, "The broker id is not registered."
    INCONSISTENT_TOPIC_ID = 103, "The log's topic id is not the one of the request.", RETRIABLE
    INCONSISTENT_CLUSTER_ID = 104, "The cluster id is not this cluster's."
    TRANSACTIONAL_ID_NOT_FOUND = 105, "There is no such transactional id."
    FETCH_SESSION_TOPIC_ID_ERROR = 106, "The fetch session mixes topic names and ids.", RETRIABLE
    INELIGIBLE_REPLICA = 107, "The new set of in-sync replicas contains an ineligible replica."
    NEW_LEADER_ELECTED = 108, "The partition was altered, and has a new leader."
    OFFSET_MOVED_TO_TIERED_STORAGE = 109, "The offset is now in tiered storage."
    FENCED_MEMBER_EPOCH = 110, "The member's epoch is fenced: give up all partitions and rejoin."
    UNRELEASED_INSTANCE_ID = 111, "Another member still holds this group instance id."
    UNSUPPORTED_ASSIGNOR = 112, "The group cannot use this assignor."
    STALE_MEMBER_EPOCH = 113, "The member's epoch is old: retry with the epoch of the next heartbeat."
    MISMATCHED_ENDPOINT_TYPE = 114, "The request went to an endpoint of the wrong kind."
    UNSUPPORTED_ENDPOINT_TYPE = 115, "Endpoints of this kind are not supported."
    UNKNOWN_CONTROLLER_ID = 116, "There is no such controller."
    UNKNOWN_SUBSCRIPTION_ID = 117, "The telemetry subscription is unknown or outdated."
    TELEMETRY_TOO_LARGE = 118, "The telemetry is larger than the broker accepts."
    INVALID_REGISTRATION = 119, "The controller refuses the broker's registration."
    TRANSACTION_ABORTABLE = 120, "The transaction failed: abort it and begin another."
    INVALID_RECORD_STATE = 121, "The record's state does not allow this acknowledgement."
    SHARE_SESSION_NOT_FOUND = 122, "There is no such share session.", RETRIABLE
    INVALID_SHARE_SESSION_EPOCH = 123, "The share session's epoch is not the expected one.", RETRIABLE
    FENCED_STATE_EPOCH = 124, "The share group's state epoch is not the expected one."
    INVALID_VOTER_KEY = 125, "The voter's key is not the replica's."
    DUPLICATE_VOTER = 126, "The voter is in the set already."
    VOTER_NOT_FOUND = 127, "The voter is not in the set."
    INVALID_REGULAR_EXPRESSION = 128, "The regular expression is not valid."
    REBOOTSTRAP_REQUIRED = 129, "The client's metadata is too old: start again from the bootstrap servers."
    STREAMS_INVALID_TOPOLOGY = 130, "The topology is not valid."
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131, "The topology's epoch is not valid."
    STREAMS_TOPOLOGY_FENCED = 132, "The topology's epoch is old."
    SHARE_SESSION_LIMIT_REACHED = 133, "There are as many share sessions as there may be.", RETRIABLE

    @classmethod
    def describe(cls, code: int) -> str:
        """Name and text of a code, also of a code that this table does not have."""
        try:
            error = cls(code)
        except ValueError:
            return f"error {code}"
        return f"{error.name}: {error.message}"
