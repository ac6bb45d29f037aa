package embedded

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/tidemarkdb/tidemark/bench/proof/process"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/admin"
	"github.com/tidemarkdb/tidemark/range/backup/catalog"
	"github.com/tidemarkdb/tidemark/range/backup/target"
	"github.com/tidemarkdb/tidemark/rpc/backoff"
)

// badS3 is an S3 server in memory behind a proxy that does wrong.
type badS3 struct {
	server *httptest.Server
	inside http.Handler

	mu sync.Mutex
	// random draws what is done wrong with a request; nil: nothing is.
	random *rand.Rand
	// refuse, if set, answers a request with an error of S3; an empty code: it does not.
	refuse func(*http.Request) (status int, code string)
	// wrong counts what was done wrong.
	wrong map[string]int
}

// startBadS3 starts a server with the bucket "bucket", which does nothing wrong yet.
func startBadS3(t *testing.T) *badS3 {
	backend := s3mem.New()
	if err := backend.CreateBucket("bucket"); err != nil {
		t.Fatal(err)
	}
	s := &badS3{inside: gofakes3.New(backend).Server(), wrong: make(map[string]int)}
	s.server = httptest.NewServer(s)
	t.Cleanup(s.server.Close)
	return s
}

func (s *badS3) url(bucket string) string {
	return "s3://" + bucket + "/prefix?path-style=true&endpoint=" + s.server.URL
}

// refuses has requests refused from now on.
func (s *badS3) refuses(refuse func(*http.Request) (int, string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse = refuse
}

// fault draws what is done wrong with a request, "" in two of three cases.
func (s *badS3) fault() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.random == nil || s.random.IntN(3) > 0 {
		return ""
	}
	all := []string{"error", "throttled", "slow", "cut before", "cut within", "lost answer",
		"half an answer"}
	fault := all[s.random.IntN(len(all))]
	s.wrong[fault]++
	return fault
}

func answerError(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, "<?xml version=\"1.0\"?><Error><Code>%s</Code><Message>%s</Message></Error>",
		code, code)
}

// ServeHTTP implements http.Handler.
func (s *badS3) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	refuse := s.refuse
	s.mu.Unlock()
	if refuse != nil {
		if status, code := refuse(r); code != "" {
			_, _ = io.Copy(io.Discard, r.Body)
			answerError(w, status, code)
			return
		}
	}
	switch s.fault() {
	case "":
		s.inside.ServeHTTP(w, r)
	case "error":
		_, _ = io.Copy(io.Discard, r.Body)
		answerError(w, http.StatusInternalServerError, "InternalError")
	case "throttled":
		_, _ = io.Copy(io.Discard, r.Body)
		answerError(w, http.StatusServiceUnavailable, "SlowDown")
	case "slow":
		select { // the client waits, and nothing else does
		case <-time.After(20 * time.Millisecond):
		case <-r.Context().Done():
		}
		s.inside.ServeHTTP(w, r)
	case "cut before":
		panic(http.ErrAbortHandler)
	case "cut within":
		_, _ = io.CopyN(io.Discard, r.Body, r.ContentLength/2)
		panic(http.ErrAbortHandler)
	case "lost answer":
		s.inside.ServeHTTP(httptest.NewRecorder(), r)
		panic(http.ErrAbortHandler)
	case "half an answer":
		recorder := httptest.NewRecorder()
		s.inside.ServeHTTP(recorder, r)
		for name, values := range recorder.Header() {
			w.Header()[name] = values
		}
		w.Header().Set("Content-Length", strconv.Itoa(recorder.Body.Len()))
		w.WriteHeader(recorder.Code)
		_, _ = w.Write(recorder.Body.Bytes()[:recorder.Body.Len()/2])
		panic(http.ErrAbortHandler)
	}
}

// openTarget opens a target with credentials, and retries that do not wait for long.
func openTarget(ctx context.Context, url string) (target.Target, error) {
	return target.Open(ctx, url, target.Options{
		Credentials: &target.Credentials{AccessKey: "access", SecretKey: "secret"},
		Retries: backoff.Backoff{Name: "test", Base: time.Millisecond, Cap: 10 * time.Millisecond,
			Jitter: 0.5}})
}

// backupCluster is a cluster of two nodes whose targets are those of openTarget.
type backupCluster struct {
	*testing.T
	client *kv.Client
	admin  *admin.Client
}

func startBackupCluster(t *testing.T) backupCluster {
	cluster, err := StartCluster(t.Context(), ClusterConfig{Dir: t.TempDir(), Nodes: 2, Cores: 1,
		Listen:    "127.0.0.1:0",
		Configure: func(_ int, c *ServerConfig) { c.OpenTarget = openTarget }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := cluster.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	client, err := kv.Open(t.Context(), cluster.Endpoints())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return backupCluster{t, client, admin.New(client)}
}

// must ends the test with what was being done.
func (b backupCluster) must(err error, doing string) {
	b.Helper()
	if err != nil {
		b.Fatalf("%s: %v", doing, err)
	}
}

// fill makes a hash keyspace and a range keyspace, and writes rows to both.
func (b backupCluster) fill() {
	b.Helper()
	for name, layout := range map[string]kv.KeyspaceOption{"hash": kv.Hash(4),
		"range": kv.Range([]byte("k03"), []byte("k06"))} {
		_, err := b.client.CreateKeyspace(b.Context(), name, layout, kv.Replicas(1))
		b.must(err, "create a keyspace")
		b.write(name, "first", 2000)
		_, err = b.client.Keyspace(name).Put(b.Context(), []byte("expires"), []byte("x"),
			kv.TTL(time.Hour))
		b.must(err, "write")
	}
}

func (b backupCluster) write(keyspace, value string, n int) {
	b.Helper()
	var pairs []kv.Pair
	for i := range n {
		pairs = append(pairs, kv.Pair{Key: fmt.Appendf(nil, "k%04d", i*7%n),
			Value: fmt.Appendf(nil, "%s %d", value, i)})
	}
	for len(pairs) > 0 {
		some := pairs[:min(len(pairs), 500)]
		_, err := b.client.Keyspace(keyspace).BatchPut(b.Context(), some)
		b.must(err, "write")
		pairs = pairs[len(some):]
	}
}

// rows is what a keyspace has, and when it expires.
func (b backupCluster) rows(keyspace string, options ...kv.ScanOption) string {
	b.Helper()
	var text strings.Builder
	for pair, err := range b.client.Keyspace(keyspace).Scan(b.Context(), options...) {
		b.must(err, "scan")
		fmt.Fprintf(&text, "%s=%s until %d\n", pair.Key, pair.Value, pair.Expires.UnixNano())
	}
	return text.String()
}

// job has a backup or restore made, and returns it when it has ended.
func (b backupCluster) job(o admin.BackupOptions) admin.BackupInfo {
	b.Helper()
	job, err := b.admin.CreateBackup(b.Context(), o)
	b.must(err, "ask for a backup")
	return b.over(job.ID)
}

func (b backupCluster) over(id string) (job admin.BackupInfo) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), 2*time.Minute)
	defer cancel()
	b.must(process.Until(ctx, "the end of "+id, 20*time.Millisecond, func(ctx context.Context) error {
		var err error
		if job, err = b.admin.Backup(ctx, id); err == nil && !job.Over() {
			err = fmt.Errorf("%s, %s; the last failure: %s", job.State, job.Step, job.LastFailure)
		}
		return err
	}), "wait")
	return job
}

// objects are the names in a bucket.
func (b backupCluster) objects(url string) (names []string) {
	b.Helper()
	opened, err := openTarget(b.Context(), url)
	b.must(err, "open the target")
	defer opened.Close()
	for object, err := range opened.List(b.Context(), "") {
		b.must(err, "list the target")
		names = append(names, object.Name)
	}
	return names
}

// A chain of backups and a restore go through an S3 server that fails, throttles, is slow, cuts
// connections and loses answers.
func TestBackupThroughBadS3(t *testing.T) {
	s := startBadS3(t)
	b := startBackupCluster(t)
	b.fill()
	const seed = 1
	s.mu.Lock()
	s.random = rand.New(rand.NewPCG(seed, 3))
	s.mu.Unlock()
	url := s.url("bucket")
	full := b.job(admin.BackupOptions{Target: url})
	if full.State != admin.BackupComplete {
		t.Fatalf("the full backup is %s: %s", full.State, full.Error)
	}
	b.write("hash", "second", 100)
	b.write("range", "second", 100)
	next := b.job(admin.BackupOptions{Target: url, Parent: admin.LatestBackup})
	if next.State != admin.BackupComplete {
		t.Fatalf("the incremental backup is %s: %s", next.State, next.Error)
	}
	b.write("hash", "third", 10)
	for _, made := range []admin.BackupInfo{full, next} {
		names := map[string]string{"hash": "hash-" + made.ID[17:], "range": "range-" + made.ID[17:]}
		restored := b.job(admin.BackupOptions{Target: url, Include: []string{"hash", "range"},
			Restore: &admin.RestoreOptions{Backup: made.ID, Names: names}})
		if restored.State != admin.BackupComplete {
			t.Fatalf("the restore is %s: %s", restored.State, restored.Error)
		}
		for of, name := range names {
			if got, want := b.rows(name), b.rows(of, kv.At(made.At)); got != want || want == "" {
				t.Errorf("%s of %s: %.300s\nwant %.300s", of, made.ID, got, want)
			}
			b.must(b.client.DropKeyspace(t.Context(), name), "drop a keyspace")
		}
	}
	opened, err := openTarget(t.Context(), s.url("bucket"))
	b.must(err, "open the target")
	defer opened.Close()
	c := catalog.New(opened, nil)
	found, err := c.Verify(t.Context(), "", nil)
	if err != nil || len(found.Problems) > 0 || len(found.Backups) != 2 {
		t.Fatalf("verify: %+v, %v", found, err)
	}
	for i := range found.Backups {
		_, err := c.Delete(t.Context(), found.Backups[len(found.Backups)-1-i].ID)
		b.must(err, "delete a backup")
	}
	if left := b.objects(s.url("bucket")); len(left) > 0 {
		t.Errorf("left over: %q", left)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.wrong) != 7 {
		t.Errorf("not every fault has happened: %v", s.wrong)
	}
}

// A target that refuses a backup ends it with what to do about it, and cancelling the backup
// removes what it has written.
func TestBackupRefusedByS3(t *testing.T) {
	s := startBadS3(t)
	b := startBackupCluster(t)
	b.fill()
	puts := func(part string) func(*http.Request) bool {
		return func(r *http.Request) bool {
			return r.Method == http.MethodPut && strings.Contains(r.URL.Path, part)
		}
	}
	all := func(*http.Request) bool { return true }
	for name, c := range map[string]struct {
		bucket string
		which  func(*http.Request) bool
		status int
		code   string
		words  string
	}{
		"credentials":         {"bucket", all, 403, "InvalidAccessKeyId", "correct the credentials"},
		"signature":           {"bucket", all, 403, "SignatureDoesNotMatch", "correct the credentials"},
		"no bucket":           {"another", all, 404, "NoSuchBucket", "make the bucket"},
		"no right to write":   {"bucket", puts(""), 403, "AccessDenied", "s3:PutObject"},
		"full from the start": {"bucket", puts(""), 507, "", "make space there"},
		"full, pieces":        {"bucket", puts("/piece/"), 507, "XMinioStorageFull", "make space there"},
		"over the quota":      {"bucket", puts("/piece/"), 400, "QuotaExceeded", "raise the quota"},
		"full, units":         {"bucket", puts("/unit/"), 507, "InsufficientStorage", "make space there"},
		"full, manifest":      {"bucket", puts("/manifest"), 400, "QuotaExceeded", "raise the quota"},
		"full, head":          {"bucket", puts("/head"), 400, "QuotaExceeded", "raise the quota"},
	} {
		t.Run(name, func(t *testing.T) {
			b := b
			b.T = t
			var refused atomic.Int64
			s.refuses(func(r *http.Request) (int, string) {
				if !c.which(r) {
					return 0, ""
				}
				refused.Add(1)
				code := c.code
				if code == "" {
					code = "SomethingElse"
				}
				return c.status, code
			})
			defer s.refuses(nil)
			job := b.job(admin.BackupOptions{Target: s.url(c.bucket)})
			if job.State != admin.BackupFailed || !strings.Contains(job.Error, c.words) {
				t.Errorf("it is %s: %s; want %q", job.State, job.Error, c.words)
			}
			if n := refused.Load(); n > 10 {
				t.Errorf("%d requests were tried", n)
			}
			if strings.HasPrefix(name, "no bucket") || name == "credentials" {
				// It can be cancelled nevertheless; the names of what may be left are said.
				if job := b.cancel(job.ID); !strings.Contains(job.Error, "backup delete "+job.Target) {
					t.Errorf("the cancelled backup says %q", job.Error)
				}
			} else {
				s.refuses(nil)
				if job := b.cancel(job.ID); job.Error != "" {
					t.Errorf("the cancelled backup says %q", job.Error)
				}
			}
			s.refuses(nil)
			if left := b.objects(s.url("bucket")); len(left) > 0 {
				t.Errorf("left over: %q", left)
			}
			for _, name := range []string{"hash", "range"} {
				left, err := b.client.Keyspace(name).Consumers(t.Context())
				if err != nil || len(left) > 0 {
					t.Errorf("consumers of %s: %v, %v", name, left, err)
				}
			}
		})
	}

	// The same with a restore, whose keyspaces are dropped.
	made := b.job(admin.BackupOptions{Target: s.url("bucket")})
	if made.State != admin.BackupComplete {
		t.Fatalf("the backup is %s: %s", made.State, made.Error)
	}
	s.refuses(func(r *http.Request) (int, string) {
		if strings.Contains(r.URL.Path, "/piece/") {
			return 403, "AccessDenied"
		}
		return 0, ""
	})
	job := b.job(admin.BackupOptions{Target: s.url("bucket"), Restore: &admin.RestoreOptions{
		Backup: made.ID, Names: map[string]string{"hash": "hash2", "range": "range2"}}})
	if job.State != admin.BackupFailed || !strings.Contains(job.Error, "s3:GetObject") {
		t.Errorf("the restore is %s: %s", job.State, job.Error)
	}
	b.cancel(job.ID)
	left, err := b.admin.Keyspaces(t.Context())
	b.must(err, "list the keyspaces")
	for _, ks := range left {
		if strings.Contains(ks.Name, "2") && ks.State != "dropping" {
			t.Errorf("left over: %+v", ks)
		}
	}
}

// cancel ends a job.
func (b backupCluster) cancel(id string) admin.BackupInfo {
	b.Helper()
	_, err := b.admin.CancelBackup(b.Context(), id)
	b.must(err, "cancel")
	job := b.over(id)
	if job.State != admin.BackupCancelled {
		b.Errorf("%s is %s: %s", id, job.State, job.Error)
	}
	return job
}
