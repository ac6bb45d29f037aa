package etcdfile

import (
	"encoding/binary"
	"maps"
	"slices"

	"go.etcd.io/etcd/api/v3/authpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
)

// records visits a file's records of a state, except for its history: bucket by bucket, in no order
// within a bucket.
func records(e *store.Export, visit func(bucket string, key, value []byte) error) error {
	meta := map[string][]byte{
		"consistent_index": binary.BigEndian.AppendUint64(nil, e.Index),
		"term":             binary.BigEndian.AppendUint64(nil, e.Term),
		"storageVersion":   []byte(StorageVersion),
	}
	if e.Compacted > 0 {
		meta["finishedCompactRev"] = revisionKey(e.Compacted, 0)
		meta["scheduledCompactRev"] = revisionKey(e.Compacted, 0)
	}
	for name, value := range meta {
		if err := visit("meta", []byte(name), value); err != nil {
			return err
		}
	}
	return stateRecords(e, visit)
}

// stateRecords visits the records of leases, users and roles, in the order of their keys.
func stateRecords(e *store.Export, visit func(bucket string, key, value []byte) error) error {
	leases, err := e.Leases()
	if err != nil {
		return err
	}
	for _, l := range leases {
		id := binary.BigEndian.AppendUint64(nil, uint64(l.ID))
		if err := visit("lease", id, leaseRecord(l)); err != nil {
			return err
		}
	}
	return authRecords(e, visit)
}

// changeRecord returns one version of a key in etcd's encoding; number is the number of the change
// within its revision.
func changeRecord(c store.Change, number uint64) (key, value []byte, err error) {
	key = revisionKey(c.KV.ModRevision, number)
	kv := &mvccpb.KeyValue{Key: c.KV.Key}
	if c.KV.Version == 0 {
		key = append(key, tombstoneMark)
	} else {
		kv.CreateRevision, kv.ModRevision = int64(c.KV.CreateRevision), int64(c.KV.ModRevision)
		kv.Version, kv.Value, kv.Lease = int64(c.KV.Version), c.KV.Value, c.KV.Lease
	}
	value, err = proto.Marshal(kv)
	return key, value, err
}

// leaseRecord encodes etcd's leasepb.Lease: id, term and remaining seconds.
func leaseRecord(l store.ExportedLease) []byte {
	var record []byte
	for field, value := range []uint64{uint64(l.ID), (l.TTLMillis + 999) / 1000,
		(l.LeftMillis + 999) / 1000} {
		if value != 0 {
			record = protowire.AppendTag(record, protowire.Number(field+1), protowire.VarintType)
			record = protowire.AppendVarint(record, value)
		}
	}
	return record
}

// userRecord is etcd's record of a user.
func userRecord(name string, u *storepb.UserRecord) ([]byte, error) {
	record := &authpb.User{Name: []byte(name), Password: u.Hash, Roles: u.Roles}
	if u.NoPassword {
		record.Options = &authpb.UserAddOptions{NoPassword: true}
	}
	return proto.Marshal(record)
}

// roleRecord returns etcd's record of a role, without its rights to keyspaces.
func roleRecord(name string, r *storepb.RoleRecord) ([]byte, error) {
	record := &authpb.Role{Name: []byte(name)}
	for _, p := range r.Permissions {
		record.KeyPermission = append(record.KeyPermission, &authpb.Permission{
			PermType: authpb.Permission_Type(p.Type), Key: p.Key, RangeEnd: p.RangeEnd})
	}
	return proto.Marshal(record)
}

// authRecords visits the records of users and roles.
func authRecords(e *store.Export, visit func(bucket string, key, value []byte) error) error {
	auth, err := e.Auth()
	if err != nil {
		return err
	}
	enabled := []byte{0}
	if auth.Enabled {
		enabled[0] = 1
	}
	if err := visit("auth", []byte("authEnabled"), enabled); err != nil {
		return err
	}
	if err := visit("auth", []byte("authRevision"),
		binary.BigEndian.AppendUint64(nil, auth.Revision)); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(auth.Users)) {
		record, err := userRecord(name, auth.Users[name])
		if err == nil {
			err = visit("authUsers", []byte(name), record)
		}
		if err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(auth.Roles)) {
		role := auth.Roles[name]
		record, err := roleRecord(name, role)
		if err == nil {
			err = visit("authRoles", []byte(name), record)
		}
		if err == nil && len(role.Keyspaces) > 0 {
			record, err = proto.Marshal(&storepb.RoleRecord{Keyspaces: role.Keyspaces})
			if err == nil {
				err = visit(grantsBucket, []byte(name), record)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}
