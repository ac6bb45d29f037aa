package target

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/minio/minio-go/v7/pkg/s3utils"

	"github.com/tidemarkdb/tidemark/rpc/backoff"
)

const (
	// awsEndpoint is the default endpoint.
	awsEndpoint = "https://s3.amazonaws.com"
	// otherRegion is the region of a URL that has an endpoint and no region. Servers without regions
	// expect this value.
	otherRegion = "us-east-1"
	// maxFolder is the length of the longest prefix in a bucket. A key of S3 has 1,024 bytes.
	maxFolder = 1024 - MaxName - 1
	// roleTimeout limits the wait for the service that provides the credentials of a machine's role.
	// On a machine without such a service nothing answers.
	roleTimeout         = 5 * time.Second
	defaultStallTimeout = 30 * time.Second
)

// s3Settings are the settings in a URL.
type s3Settings struct {
	bucket, folder string
	// endpoint has a scheme and a host.
	endpoint *url.URL
	region   string
	lookup   minio.BucketLookupType
	text     string
}

// openS3 makes the target for an s3 URL.
func openS3(ctx context.Context, u *url.URL, options Options) (Target, error) {
	settings, err := parseS3(u)
	if err != nil {
		return nil, err
	}
	if options.Retries == (backoff.Backoff{}) {
		options.Retries = defaultRetries
	}
	if options.StallTimeout <= 0 {
		options.StallTimeout = defaultStallTimeout
	}
	creds, err := s3Credentials(ctx, options.Credentials)
	if err != nil {
		return nil, &failure{target: settings.text, operation: "open", class: ErrRefused, cause: err,
			advice: "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment of the " +
				"program, or use ~/.aws/credentials or the role of the machine"}
	}
	t := &s3Target{
		transport: newTransport(options.StallTimeout, options.dial), options: options,
		bucket: settings.bucket, folder: settings.folder, text: settings.text,
		secure: settings.endpoint.Scheme == "https", credentials: creds,
	}
	client, err := minio.NewCore(settings.endpoint.Host, &minio.Options{
		Creds: creds, Secure: t.secure, Transport: t.transport, Region: settings.region,
		BucketLookup: settings.lookup, MaxRetries: 1, // a single attempt: the method do retries
	})
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrInvalid, settings.text, err)
	}
	client.SetAppInfo("tidemark", "backup")
	t.client = *client
	return t, nil
}

// parseS3 parses an s3 URL. Its errors do not quote values of unknown parameters, because such a
// value may be a secret.
func parseS3(u *url.URL) (s3Settings, error) {
	bad := func(format string, args ...any) (s3Settings, error) {
		return s3Settings{}, fmt.Errorf("%w: "+format, append([]any{ErrInvalid}, args...)...)
	}
	s := s3Settings{bucket: u.Host, lookup: minio.BucketLookupAuto}
	if err := s3utils.CheckValidBucketNameStrict(s.bucket); err != nil {
		return bad("an S3 target is s3://bucket/prefix, and %q cannot be the name of a bucket: %w", s.bucket,
			err)
	}
	if u.Fragment != "" {
		return bad("write a number sign in the prefix of an S3 target as %%23")
	}
	if folder := strings.Trim(u.Path, "/"); folder != "" {
		for segment := range strings.SplitSeq(folder, "/") {
			if segment == "" || segment == "." || segment == ".." ||
				strings.ContainsFunc(segment, unicode.IsControl) {
				return bad("the prefix %q of an S3 target has the segment %q", folder, segment)
			}
		}
		if len(folder) > maxFolder {
			return bad("the prefix of an S3 target has %d bytes; %d is the limit", len(folder), maxFolder)
		}
		s.folder = folder + "/"
	}
	parameters, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return bad("the parameters of an S3 target cannot be read: separate them by &, and write " +
			"unusual characters as %%-escapes")
	}
	for name, values := range parameters {
		switch name {
		case "endpoint", "region", "path-style":
			if len(values) != 1 || values[0] == "" {
				return bad("give %s once in the URL of an S3 target, with a value", name)
			}
		default:
			return bad("an S3 target has the parameters endpoint, region and path-style, and not %q; "+
				"credentials come from the environment, ~/.aws/credentials or the role of the machine", name)
		}
	}
	text := awsEndpoint
	s.region = parameters.Get("region")
	if endpoint := parameters.Get("endpoint"); endpoint != "" {
		text = endpoint
		if !strings.Contains(text, "://") {
			text = "https://" + text
		}
		if s.region == "" {
			s.region = otherRegion
		}
	}
	s.endpoint, err = url.Parse(text)
	switch {
	case err != nil, s.endpoint.Scheme != "https" && s.endpoint.Scheme != "http",
		s.endpoint.Hostname() == "", s.endpoint.Path != "" && s.endpoint.Path != "/",
		s.endpoint.RawQuery != "", s.endpoint.Fragment != "", s.endpoint.User != nil:
		return bad("the endpoint of an S3 target is https://host:port or http://host:port, without " +
			"credentials and path")
	case strings.ContainsFunc(s.region, func(r rune) bool { return notInNames(r) }):
		return bad("%q cannot be the region of an S3 target", s.region)
	}
	if style := parameters.Get("path-style"); style != "" {
		byPath, err := strconv.ParseBool(style)
		if err != nil {
			return bad("path-style of an S3 target is true or false, and not %q", style)
		}
		if s.lookup = minio.BucketLookupDNS; byPath {
			s.lookup = minio.BucketLookupPath
		}
	}
	s.text = s.canonical(parameters)
	return s, nil
}

// canonical formats the URL again, with the parameters that it had.
func (s s3Settings) canonical(parameters url.Values) string {
	u := url.URL{Scheme: "s3", Host: s.bucket, Path: "/" + strings.TrimSuffix(s.folder, "/")}
	if s.folder == "" {
		u.Path = ""
	}
	var given []string
	if parameters.Has("endpoint") {
		given = append(given, "endpoint="+s.endpoint.Scheme+"://"+s.endpoint.Host)
	}
	if region := parameters.Get("region"); region != "" {
		given = append(given, "region="+region)
	}
	if parameters.Has("path-style") {
		given = append(given, "path-style="+strconv.FormatBool(s.lookup == minio.BucketLookupPath))
	}
	u.RawQuery = strings.Join(given, "&")
	return u.String()
}

// errNoCredentials is returned by chain if no provider has credentials.
var errNoCredentials = errors.New("there are no credentials")

// chain asks providers of credentials in turn. It fails if no provider has credentials. The chain
// of the library would send requests without a signature instead, which servers would refuse as
// denied.
type chain struct{ credentials.Chain }

// RetrieveWithCredContext implements credentials.Provider.
func (c *chain) RetrieveWithCredContext(cc *credentials.CredContext) (credentials.Value, error) {
	value, err := c.Chain.RetrieveWithCredContext(cc)
	if err == nil && value.AccessKeyID == "" {
		err = errNoCredentials
	}
	return value, err
}

// Retrieve implements credentials.Provider.
func (c *chain) Retrieve() (credentials.Value, error) { return c.RetrieveWithCredContext(nil) }

// s3Credentials returns the given credentials, or credentials from the usual places.
func s3Credentials(ctx context.Context, given *Credentials) (*credentials.Credentials, error) {
	if given != nil {
		if given.AccessKey == "" || given.SecretKey == "" {
			return nil, errNoCredentials
		}
		return credentials.NewStaticV4(given.AccessKey, given.SecretKey, given.SessionToken), nil
	}
	// Requests to the service that provides the role must not go through a proxy.
	services := &http.Client{Timeout: roleTimeout, Transport: &http.Transport{
		DialContext: (&net.Dialer{Timeout: roleTimeout}).DialContext, DisableKeepAlives: true,
	}}
	found := credentials.New(&chain{Chain: credentials.Chain{Providers: []credentials.Provider{
		&credentials.EnvAWS{}, &credentials.FileAWSCredentials{}, &credentials.IAM{Client: services},
	}}})
	_, err := found.GetWithContext(&credentials.CredContext{Client: services, Context: ctx})
	return found, err
}
