package meta

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protopath"
	"google.golang.org/protobuf/reflect/protorange"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/tidemarkdb/tidemark/placement/server/serverpb"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/range/keys"
)

const (
	// ReservedPrefix begins placement's own keys in the core's store. Clients may read them and not
	// write them.
	ReservedPrefix = "/_tidemark/"
	// TablePrefix begins those that are sent to nodes and clients.
	TablePrefix = ReservedPrefix + "table/"

	NodePrefix      = TablePrefix + "node/"      // node -> clusterpb.Node
	AlivePrefix     = TablePrefix + "alive/"     // node -> nothing, under the node's lease
	KeyspacePrefix  = TablePrefix + "keyspace/"  // keyspace -> clusterpb.Keyspace
	PartitionPrefix = TablePrefix + "partition/" // keyspace/partition -> clusterpb.Partition

	clusterKey      = ReservedPrefix + "cluster"    // the cluster's id
	IDsKey          = ReservedPrefix + "ids"        // serverpb.Ids
	serverPrefix    = ReservedPrefix + "server/"    // directory -> node
	directoryPrefix = ReservedPrefix + "directory/" // node -> serverpb.Server
	NamePrefix      = ReservedPrefix + "name/"      // name of a keyspace -> its id
	CreationPrefix  = ReservedPrefix + "creation/"  // keyspace -> serverpb.Creation
	TokenPrefix     = ReservedPrefix + "token/"     // number modulo MaxTokens -> serverpb.Token
	CoreGoalKey     = ReservedPrefix + "core"       // serverpb.CoreGoal; absent: nothing is under way
	OperatorPrefix  = ReservedPrefix + "operator/"  // partition -> serverpb.Operator
	HeldPrefix      = ReservedPrefix + "held/"      // partition -> the one whose operator merges it
	RecoveryPrefix  = ReservedPrefix + "recovery/"  // partition -> clusterpb.RecoveredPartition
	eventPrefix     = ReservedPrefix + "event/"     // number -> clusterpb.Event
	eventsKey       = ReservedPrefix + "events"     // the number of the last event
	ConsumerPrefix  = ReservedPrefix + "consumer/"  // keyspace/name -> clusterpb.Consumer
	SettingsKey     = ReservedPrefix + "settings"   // clusterpb.PlacementSettings
	BackupPrefix    = ReservedPrefix + "backup/"    // id -> clusterpb.Backup
	// SchedulePrefix: name -> clusterpb.BackupSchedule
	SchedulePrefix = ReservedPrefix + "backup-schedule/"

	// GuardKey has the clusterpb.GuardState; absent: servers never had to follow users and roles.
	GuardKey = ReservedPrefix + "guard"
	// RecoveredKey is there when the core has gone on from one member, until GuardKey is put off.
	RecoveredKey = ReservedPrefix + "recovered"

	// LevelKey has the serverpb.Level; absent: the cluster is at level 0.
	LevelKey = ReservedPrefix + "level"

	// CoordinationKey has the storepb.Members with which the coordination store was founded.
	CoordinationKey = ReservedPrefix + "coordination"

	// MaxGCWindow bounds the GC window of a keyspace: 100 years, in seconds.
	MaxGCWindow = 100 * 366 * 24 * 3600
	// MaxTextBytes bounds addresses, localities, tags, versions and sentences, each.
	MaxTextBytes = 1024
	// Chunk is how many partitions one transaction writes or removes.
	Chunk = 256
	// MaxTokens is how many creations and drops are remembered.
	MaxTokens = 1024

	// nodeLeases is where the ids of nodes' leases begin: beyond what clients are likely to choose.
	nodeLeases = 0x7469_6465_0000_0000
)

// NodeKey is the key of a node's record.
func NodeKey(id keys.NodeID) []byte { return fmt.Appendf(nil, "%s%016x", NodePrefix, uint64(id)) }

// AliveKey is the key that a node has under its lease.
func AliveKey(id keys.NodeID) []byte { return fmt.Appendf(nil, "%s%016x", AlivePrefix, uint64(id)) }

// DirectoryKey is the key of the directory that a node has.
func DirectoryKey(id keys.NodeID) []byte {
	return fmt.Appendf(nil, "%s%016x", directoryPrefix, uint64(id))
}

// ServerKey is the key of the node that a directory has.
func ServerKey(server uint64) []byte { return fmt.Appendf(nil, "%s%016x", serverPrefix, server) }

// NameKey is the key of a keyspace's name.
func NameKey(name string) []byte { return []byte(NamePrefix + name) }

// TokenKey is the key of the token with a number.
func TokenKey(number uint64) []byte {
	return fmt.Appendf(nil, "%s%04x", TokenPrefix, number%MaxTokens)
}

// NodeLease is the id of a node's lease.
func NodeLease(id keys.NodeID) int64 { return nodeLeases + int64(id) }

// KeyspaceKey is the key of a keyspace's record.
func KeyspaceKey(id keys.KeyspaceID) []byte {
	return fmt.Appendf(nil, "%s%08x", KeyspacePrefix, uint32(id))
}

// CreationKey is the key of what is left to do of a creation.
func CreationKey(id keys.KeyspaceID) []byte {
	return fmt.Appendf(nil, "%s%08x", CreationPrefix, uint32(id))
}

// RecoveryKey is the key of the confirmation of a recovered partition.
func RecoveryKey(id keys.PartitionID) []byte {
	return fmt.Appendf(nil, "%s%016x", RecoveryPrefix, uint64(id))
}

// OperatorKey is the key of a partition's operator.
func OperatorKey(id keys.PartitionID) []byte {
	return fmt.Appendf(nil, "%s%016x", OperatorPrefix, uint64(id))
}

// HeldKey is the key of a partition that an operator of its left neighbour merges.
func HeldKey(id keys.PartitionID) []byte {
	return fmt.Appendf(nil, "%s%016x", HeldPrefix, uint64(id))
}

// PartitionsOf is the prefix of the keys of a keyspace's partitions.
func PartitionsOf(ks keys.KeyspaceID) []byte {
	return fmt.Appendf(nil, "%s%08x/", PartitionPrefix, uint32(ks))
}

// PartitionKey is the key of a partition's descriptor.
func PartitionKey(ks keys.KeyspaceID, id keys.PartitionID) []byte {
	return fmt.Appendf(PartitionsOf(ks), "%016x", uint64(id))
}

func eventKey(number uint64) []byte { return fmt.Appendf(nil, "%s%016x", eventPrefix, number) }

// LastID reads the hexadecimal id with which a key of the table ends.
func LastID(key []byte, digits int) (id uint64, err error) {
	if len(key) < digits {
		return 0, fmt.Errorf("the core's key %s is malformed", keys.Pretty(key))
	}
	for _, c := range key[len(key)-digits:] {
		switch {
		case c >= '0' && c <= '9':
			id = id<<4 | uint64(c-'0')
		case c >= 'a' && c <= 'f':
			id = id<<4 | uint64(c-'a'+10)
		default:
			return 0, fmt.Errorf("the core's key %s is malformed", keys.Pretty(key))
		}
	}
	return id, nil
}

// EncodeID is an id as it is stored.
func EncodeID(id uint64) []byte { return binary.BigEndian.AppendUint64(nil, id) }

func decodeID(value []byte) (uint64, error) {
	if len(value) != 8 {
		return 0, errors.New("an id in the core's store is malformed")
	}
	return binary.BigEndian.Uint64(value), nil
}

// Encode encodes a record. Text in it that is not UTF-8, which protobuf refuses, is replaced: a
// reason may quote an error of another server. Nothing else can fail to be encoded.
func Encode(r proto.Message) []byte {
	value, err := proto.Marshal(r)
	if err == nil {
		return value
	}
	r = proto.Clone(r)
	if err = replaceInvalidText(r); err == nil {
		value, err = proto.Marshal(r)
	}
	if err != nil {
		panic(fmt.Sprintf("encode %T: %v", r, err))
	}
	return value
}

// replaceInvalidText replaces what is not UTF-8 in the strings of a message.
func replaceInvalidText(m proto.Message) error {
	return protorange.Range(m.ProtoReflect(), func(path protopath.Values) error {
		last := path.Index(-1)
		text, ok := last.Value.Interface().(string)
		if !ok || utf8.ValidString(text) {
			return nil
		}
		valid := protoreflect.ValueOfString(strings.ToValidUTF8(text, "\uFFFD"))
		parent := path.Index(-2).Value
		switch last.Step.Kind() {
		case protopath.FieldAccessStep:
			parent.Message().Set(last.Step.FieldDescriptor(), valid)
		case protopath.ListIndexStep:
			parent.List().Set(last.Step.ListIndex(), valid)
		}
		return nil
	})
}

// Malformed says that the record of a key cannot be read.
func Malformed(key []byte, err error) error {
	return fmt.Errorf("the core's record %s is malformed: %w", keys.Pretty(key), err)
}

// All reads the records under a prefix, in the order of their keys. An error is the last that it
// yields.
func All[T any, R interface {
	*T
	proto.Message
}](v *store.View, prefix []byte) iter.Seq2[R, error] {
	return func(yield func(R, error) bool) {
		for kv, err := range v.All(prefix) {
			r := R(new(T))
			if err == nil {
				if err = proto.Unmarshal(kv.Value, r); err != nil {
					err = Malformed(kv.Key, err)
				}
			}
			if err != nil {
				yield(nil, err)
				return
			}
			if !yield(r, nil) {
				return
			}
		}
	}
}

// Load reads a record, and the revision at which it was written; 0 if it is not there.
func Load(v *store.View, key []byte, r proto.Message) (revision uint64, err error) {
	kv, err := v.Get(key)
	if err != nil || kv == nil {
		return 0, err
	}
	if err := proto.Unmarshal(kv.Value, r); err != nil {
		return 0, Malformed(key, err)
	}
	return kv.ModRevision, nil
}

// LoadID reads an id; 0 if it is not there.
func LoadID(v *store.View, key []byte) (id, revision uint64, err error) {
	kv, err := v.Get(key)
	if err != nil || kv == nil {
		return 0, 0, err
	}
	id, err = decodeID(kv.Value)
	return id, kv.ModRevision, err
}

// LoadIDs reads the counters, which begin with the first ids.
func LoadIDs(v *store.View) (ids *serverpb.Ids, revision uint64, err error) {
	ids = &serverpb.Ids{}
	if revision, err = Load(v, []byte(IDsKey), ids); err == nil && revision == 0 {
		ids = &serverpb.Ids{Node: 1, Keyspace: 1, Partition: uint64(keys.FirstDataPartition), Token: 1}
	}
	ids.Operator = max(ids.Operator, 1)
	return ids, revision, err
}
