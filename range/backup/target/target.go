package target

import (
	"context"
	"fmt"
	"iter"
	"net/url"
	"time"

	"github.com/tidemarkdb/tidemark/rpc/backoff"
)

// MaxObject is the size of the largest object, in bytes.
const MaxObject = 128 << 20

// Target stores objects under names. All methods are safe for concurrent use. The methods of an S3
// target retry temporary failures, until the time of Options.Retries is over or their context ends.
type Target interface {
	// Put stores an object and replaces an earlier object of the same name. After an error, the name
	// has the earlier object, the new object, or no object if there was none before. It never has an
	// incomplete object.
	Put(ctx context.Context, name string, data []byte) error
	// Create stores an object if there is no object of the name. Otherwise it returns ErrExists. Only
	// one of several concurrent writers succeeds. If the answer of an earlier attempt was lost and the
	// object that exists has the same content, the call succeeds. Therefore, where Create decides
	// between writers, the content should name its writer.
	Create(ctx context.Context, name string, data []byte) error
	// Get returns the whole object, or ErrNotFound.
	Get(ctx context.Context, name string) ([]byte, error)
	// List yields the objects whose names begin with a prefix, in ascending bytewise order of names.
	// The prefix need not end with a slash. An empty prefix lists everything. An error ends the list.
	// Objects that are written or deleted during the call may or may not be listed.
	List(ctx context.Context, prefix string) iter.Seq2[Object, error]
	// Delete removes an object. It returns no error if the object does not exist.
	Delete(ctx context.Context, name string) error
	// Sweep removes the leftovers of crashed writers: those for objects whose names begin with a
	// prefix, if they were last changed before a time. It returns the number of removed files and
	// empty folders. An S3 target never has leftovers.
	Sweep(ctx context.Context, prefix string, olderThan time.Time) (removed int, err error)
	// String is the URL in its shortest form, which Open accepts. It has no credentials.
	String() string
	// Close releases idle connections. No other method may be called afterwards.
	Close() error
}

// Object describes an object of a list.
type Object struct {
	Name     string
	Size     int64
	Modified time.Time
}

// Options are settings of a target. The zero value is usable.
type Options struct {
	// Retries says how an S3 target retries temporary failures. The zero value waits 200 ms after the
	// first failure, doubles the wait up to 10 s, randomizes half of it, and gives up after 2 minutes.
	Retries backoff.Backoff
	// StallTimeout is the time after which an S3 connection without progress is cut. Zero means 30 s.
	StallTimeout time.Duration
	// Credentials are the credentials of an S3 target. If they are nil, the first of these sources
	// that has credentials is used: the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY,
	// AWS_SESSION_TOKEN), the shared files of AWS (~/.aws/credentials, AWS_PROFILE), the role of the
	// machine, container or pod.
	Credentials *Credentials
	// OnRetry is called before each wait, by the goroutine of the call. It may be nil.
	OnRetry func(operation, name string, err error)

	// dial opens connections to S3 servers in tests. nil means TCP.
	dial dialer
}

// Credentials are the keys that sign requests to S3. SessionToken is empty for permanent keys.
type Credentials struct{ AccessKey, SecretKey, SessionToken string }

// String hides the credentials from logs.
func (Credentials) String() string { return "(credentials)" }

// Open returns the target of a URL: file:///directory, or s3://bucket/prefix with the optional
// parameters endpoint (https://host:port; http:// is not encrypted), region, and path-style (true
// or false). Open checks the URL and, for S3, that there are credentials. It sends nothing to the
// target. The first write creates the directory of a file target if the parent of the directory
// exists.
func Open(ctx context.Context, rawURL string, options Options) (Target, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		// The error of url.Parse contains the URL, which may contain a password.
		return nil, fmt.Errorf("%w: the URL of a backup target cannot be read: give "+
			"file:///directory or s3://bucket/prefix, with unusual characters as %%-escapes",
			ErrInvalid)
	}
	if u.User != nil {
		return nil, fmt.Errorf("%w: the URL of a backup target must not contain credentials, because "+
			"URLs end up in logs: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment, "+
			"or use ~/.aws/credentials or the role of the machine", ErrInvalid)
	}
	switch u.Scheme {
	case "file":
		return openFile(u)
	case "s3":
		return openS3(ctx, u, options)
	}
	return nil, fmt.Errorf("%w: a backup target is file:///directory or s3://bucket/prefix, and not "+
		"of the scheme %q", ErrInvalid, u.Scheme)
}
