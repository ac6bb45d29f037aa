package meta

import (
	"context"

	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/placement/server/serverpb"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// Count counts the records under a prefix.
func Count(v *store.View, prefix string) (uint64, error) {
	key, end := store.PrefixRange([]byte(prefix))
	result, err := v.Range(&storepb.Range{Key: key, RangeEnd: end, CountOnly: true})
	if err != nil {
		return 0, err
	}
	return result.Count, nil
}

// KeyspaceByName reads the keyspace with a name. The error is a status. It is NotFound if there is
// no such keyspace.
func (r *Records) KeyspaceByName(v *store.View, name string) (Keyspace, error) {
	id, _, err := LoadID(v, NameKey(name))
	if err != nil {
		return Keyspace{}, r.Status(err)
	}
	if id == 0 {
		return Keyspace{}, UnknownKeyspace(name)
	}
	ks, err := LoadKeyspace(v, keys.KeyspaceID(id))
	if err != nil {
		return Keyspace{}, r.Status(err)
	}
	if ks.Keyspace == nil {
		return Keyspace{}, UnknownKeyspace(name)
	}
	return ks, nil
}

// expected is the key of the keyspace id in a context (ForKeyspace).
type expected struct{}

// ForKeyspace returns the context of a call that may be done only to the keyspace with this id: the
// name in the call may belong to another keyspace by then. 0 allows any keyspace.
func ForKeyspace(ctx context.Context, id uint64) context.Context {
	return context.WithValue(ctx, expected{}, id)
}

// KeyspaceFor does the same as KeyspaceByName for a call, and checks the id of ForKeyspace.
func (r *Records) KeyspaceFor(
	ctx context.Context, v *store.View, name string,
) (Keyspace, error) {
	ks, err := r.KeyspaceByName(v, name)
	if id, _ := ctx.Value(expected{}).(uint64); err == nil && id != 0 && id != uint64(ks.ID()) {
		return Keyspace{}, Conflict("keyspace " + name)
	}
	return ks, err
}

// LoadAlive reads which nodes are alive.
func LoadAlive(v *store.View) (map[uint64]bool, error) {
	alive := map[uint64]bool{}
	for kv, err := range v.All([]byte(AlivePrefix)) {
		if err != nil {
			return nil, err
		}
		id, err := LastID(kv.Key, 16)
		if err != nil {
			return nil, err
		}
		alive[id] = true
	}
	return alive, nil
}

// LoadNodes reads all nodes in the order of their ids, with the flag whether they are alive.
func LoadNodes(v *store.View) ([]*clusterpb.Node, error) {
	alive, err := LoadAlive(v)
	if err != nil {
		return nil, err
	}
	var nodes []*clusterpb.Node
	for n, err := range All[clusterpb.Node](v, []byte(NodePrefix)) {
		if err != nil {
			return nil, err
		}
		n.Alive = alive[n.Id]
		nodes = append(nodes, n)
	}
	return nodes, nil
}

// CountNodes counts the nodes that are not decommissioned.
func CountNodes(v *store.View) (n uint64, err error) {
	nodes, err := LoadNodes(v)
	for _, node := range nodes {
		if node.Status != clusterpb.NodeStatus_NODE_GONE {
			n++
		}
	}
	return n, err
}

// Keyspace is a keyspace with the revision of its record.
type Keyspace struct {
	*clusterpb.Keyspace
	Revision uint64
}

// ID is the id of the keyspace.
func (k Keyspace) ID() keys.KeyspaceID { return keys.KeyspaceID(k.Id) }

// LoadKeyspaces reads all keyspaces in the order of their ids.
func LoadKeyspaces(v *store.View) ([]Keyspace, error) {
	var all []Keyspace
	for kv, err := range v.All([]byte(KeyspacePrefix)) {
		if err != nil {
			return nil, err
		}
		k := &clusterpb.Keyspace{}
		if err := proto.Unmarshal(kv.Value, k); err != nil {
			return nil, Malformed(kv.Key, err)
		}
		all = append(all, Keyspace{k, kv.ModRevision})
	}
	return all, nil
}

// LoadKeyspace reads one keyspace. Its Keyspace is nil if it does not exist.
func LoadKeyspace(v *store.View, id keys.KeyspaceID) (Keyspace, error) {
	k := &clusterpb.Keyspace{}
	revision, err := Load(v, KeyspaceKey(id), k)
	if err != nil || revision == 0 {
		return Keyspace{}, err
	}
	return Keyspace{k, revision}, nil
}

// DecodePartition decodes a descriptor. key is used in the error.
func DecodePartition(key, value []byte) (*clusterpb.Partition, error) {
	p := &clusterpb.Partition{}
	if err := proto.Unmarshal(value, p); err != nil {
		return nil, Malformed(key, err)
	}
	return p, nil
}

// LoadOperators reads all operators, by partition.
func LoadOperators(v *store.View) (map[keys.PartitionID]*serverpb.Operator, error) {
	all := map[keys.PartitionID]*serverpb.Operator{}
	for o, err := range All[serverpb.Operator](v, []byte(OperatorPrefix)) {
		if err != nil {
			return nil, err
		}
		all[keys.PartitionID(o.Partition)] = o
	}
	return all, nil
}

// LoadPartition reads a descriptor and the revision of its record. The descriptor is nil if it does
// not exist.
func LoadPartition(v *store.View, ks keys.KeyspaceID, id keys.PartitionID,
) (*clusterpb.Partition, uint64, error) {
	p := &clusterpb.Partition{}
	revision, err := Load(v, PartitionKey(ks, id), p)
	if err != nil || revision == 0 {
		return nil, 0, err
	}
	return p, revision, nil
}

// UnchangedNode returns the condition that the record of a node is unchanged since a view, and the
// node's status in the view. The status is GONE if there is no record.
func UnchangedNode(v *store.View, id keys.NodeID) (*storepb.Compare, clusterpb.NodeStatus, error) {
	n := &clusterpb.Node{}
	revision, err := Load(v, NodeKey(id), n)
	if err == nil && revision == 0 {
		n.Status = clusterpb.NodeStatus_NODE_GONE
	}
	return store.ModifiedAt(NodeKey(id), revision), n.Status, err
}

// IsGone reports whether a node was decommissioned.
func IsGone(v *store.View, id keys.NodeID) bool {
	n := &clusterpb.Node{}
	revision, err := Load(v, NodeKey(id), n)
	return err == nil && revision != 0 && n.Status == clusterpb.NodeStatus_NODE_GONE
}
