package backups

import (
	"fmt"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/placement/server/keyspaces"
	"github.com/tidemarkdb/tidemark/placement/server/meta"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// Limits of the records.
const (
	// maxRunning limits the backups that have not ended.
	maxRunning = 100
	// keepEnded is the number of records of ended backups that are kept.
	keepEnded = 100
	// maxPatterns limits the number of named keyspaces. maxRecipients limits the number of recipients:
	// a file has space for 64 recipients (package range/backup/archive), and one of them is the key of
	// the backup itself.
	maxPatterns, maxRecipients = 1000, 63
	// minKeep and maxKeep are the limits of how long history is protected. defaultKeep is the default.
	minKeep, maxKeep, defaultKeep = time.Minute, 7 * 24 * time.Hour, 24 * time.Hour
	// maxIdentities limits the identities of a restore, in bytes.
	maxIdentities = 64 << 10
	// idBytes is the length of an id.
	idBytes = len("20060102T150405Z-01234567")
)

// Latest stands for the newest complete backup in the target. A record has the id of that backup
// instead.
const Latest = "latest"

// attempts is the maximum number of attempts at a change that conflicts with others.
const attempts = 5

func clone(b *clusterpb.Backup) *clusterpb.Backup { return proto.CloneOf(b) }

// record is the stored record of a backup.
type record struct {
	*clusterpb.Backup
	revision uint64
}

func key(id string) []byte { return []byte(meta.BackupPrefix + id) }

// ended reports whether no work is left for a backup.
func (r record) ended() bool {
	switch r.State {
	case clusterpb.BackupState_BACKUP_RUNNING, clusterpb.BackupState_BACKUP_CANCELLING:
		return false
	}
	return true
}

// shown returns a copy of the record for answers.
func (r record) shown(progress *clusterpb.BackupProgress) *clusterpb.Backup {
	b := clone(r.Backup)
	b.Identity = ""
	if b.Restore != nil {
		b.Restore.Identities, b.Restore.Loaded = "", nil
	}
	if progress != nil {
		b.Progress = progress
	}
	return b
}

// load reads one record. Its Backup is nil if the record does not exist.
func load(v *store.View, id string) (record, error) {
	b := new(clusterpb.Backup)
	revision, err := meta.Load(v, key(id), b)
	if err != nil || revision == 0 {
		return record{}, err
	}
	return record{b, revision}, nil
}

// loadAll reads all records, the oldest first: ids begin with their time.
func loadAll(v *store.View) (all []record, err error) {
	for kv, err := range v.All([]byte(meta.BackupPrefix)) {
		if err != nil {
			return nil, err
		}
		b := new(clusterpb.Backup)
		if err := proto.Unmarshal(kv.Value, b); err != nil {
			return nil, meta.Malformed(kv.Key, err)
		}
		all = append(all, record{b, kv.ModRevision})
	}
	return all, nil
}

// invalid returns an error if a request is not valid.
func invalid(b *clusterpb.Backup) error {
	bad := func(format string, args ...any) error {
		return status.Errorf(codes.InvalidArgument, format, args...)
	}
	u, err := url.Parse(b.GetTarget())
	keep := time.Duration(b.GetKeepMillis()) * time.Millisecond
	switch {
	case len(b.GetId()) != idBytes || strings.Trim(b.Id, "0123456789abcdefTZ-") != "":
		return bad("%q is not the id of a backup", b.GetId())
	case err != nil:
		return bad("the target is not a URL: %v", err)
	case u.Scheme == "":
		return bad("the target %q is not a URL: give file:///DIRECTORY or s3://BUCKET/PREFIX", b.Target)
	case u.User != nil:
		return bad("the target must not have credentials: servers have their own")
	case len(b.Target) > meta.MaxTextBytes || !utf8.ValidString(b.Target):
		return bad("the target has %d bytes, or is not UTF-8; the limit is %d", len(b.Target),
			meta.MaxTextBytes)
	case len(b.Include)+len(b.Exclude) > maxPatterns:
		return bad("%d keyspaces are named, the limit is %d", len(b.Include)+len(b.Exclude), maxPatterns)
	case len(b.Recipients) > maxRecipients:
		return bad("there are %d recipients, the limit is %d", len(b.Recipients), maxRecipients)
	case b.KeepMillis != 0 && (keep < minKeep || keep > maxKeep):
		return bad("history is protected for %s to %s, not for %s", minKeep, maxKeep, keep)
	}
	if r := b.Restore; r != nil {
		switch {
		case b.Parent != "" || len(b.Recipients) > 0:
			return bad("a restore has no parent and no recipients")
		case r.NoKeyspaces && len(b.Include)+len(b.Exclude)+len(r.Names) > 0:
			return bad("keyspaces are named, and none is to be restored")
		case r.NoKeyspaces && !r.Coordination && !r.Settings:
			return bad("nothing is to be restored")
		case (r.Backup == "") == (r.At == nil && !r.Newest):
			return bad("a restore is of a backup or of a moment")
		case len(r.Names) > maxPatterns:
			return bad("%d keyspaces get other names, the limit is %d", len(r.Names), maxPatterns)
		case len(r.Identities) > maxIdentities:
			return bad("the identities have %d bytes, the limit is %d", len(r.Identities), maxIdentities)
		}
		for _, n := range r.Names {
			if !keyspaces.ValidName(n.GetAs()) {
				return bad("%q is not the name of a keyspace", n.GetAs())
			}
		}
	}
	for _, list := range [][]string{b.Include, b.Exclude, b.Recipients, {b.Parent}} {
		for _, text := range list {
			if len(text) > meta.MaxTextBytes || !utf8.ValidString(text) {
				return bad("a name has %d bytes, or is not UTF-8; the limit is %d", len(text),
					meta.MaxTextBytes)
			}
		}
	}
	return nil
}

// what names a backup in sentences.
func what(id string) string { return fmt.Sprintf("backup %s", id) }

// forgotten returns the operations that delete the records of the oldest ended backups, to make
// space for a new record.
func forgotten(all []record) (ops []*storepb.Op) {
	ended := 0
	for _, r := range all {
		if r.ended() {
			ended++
		}
	}
	for _, r := range all {
		if ended >= keepEnded && r.ended() {
			ops = append(ops, store.Delete(key(r.Id)))
			ended--
		}
	}
	return ops
}
