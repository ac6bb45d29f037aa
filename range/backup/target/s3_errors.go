package target

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"strings"

	"github.com/minio/minio-go/v7"
)

// verdict says how to proceed after a failed attempt.
type verdict struct {
	// class is one of the exported errors of this package.
	class error
	// retry is set if a further attempt may succeed.
	retry bool
	// unknown is set if the attempt may have taken effect, or may still do so.
	unknown bool
	// advice says what an operator can do. It is empty if an operator can do nothing.
	advice string
}

// Verdicts for temporary failures.
var (
	lostAnswer = verdict{class: ErrUnavailable, retry: true, unknown: true}
	notDone    = verdict{class: ErrUnavailable, retry: true}
)

func refused(advice string) verdict { return verdict{class: ErrRefused, advice: advice} }

// isPrecondition reports whether a request failed because its condition did not hold.
func isPrecondition(err error) bool {
	var response minio.ErrorResponse
	return errors.As(err, &response) &&
		(response.Code == minio.PreconditionFailed ||
			response.StatusCode == http.StatusPreconditionFailed)
}

// judge returns the verdict for an attempt that failed with an error.
func judge(operation string, err error) verdict {
	for _, class := range []error{ErrNotFound, ErrExists, ErrInvalid, ErrRefused} {
		if errors.Is(err, class) {
			return verdict{class: class}
		}
	}
	switch {
	case errors.Is(err, errDisappeared):
		return notDone
	case errors.Is(err, errTooLarge):
		return verdict{class: ErrInvalid}
	}
	var response minio.ErrorResponse
	if errors.As(err, &response) {
		return judgeResponse(operation, response)
	}
	return judgeConnection(err)
}

// judgeResponse decides by the error code of an answer, and by its HTTP status if the code is not
// known.
func judgeResponse(operation string, response minio.ErrorResponse) verdict {
	switch response.Code {
	case "NoSuchBucket", "InvalidBucketName":
		return refused("make the bucket, or correct the URL")
	case "NoSuchKey":
		if operation == "get" || operation == "delete" {
			return verdict{class: ErrNotFound}
		}
		return refused("make the bucket, or correct the URL")
	case "InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken", "TokenRefreshRequired",
		"InvalidSecurity", "NotSignedUp", "AccountProblem":
		return refused("correct the credentials: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, the " +
			"profile in ~/.aws/credentials, or the role of the machine")
	case "ExpiredToken", "ExpiredTokenException":
		return refused("the session token has expired; get new credentials")
	case "AccessDenied", "AllAccessDisabled", "InvalidPayer", "MethodNotAllowed", "InvalidObjectState":
		return refused("give the user of the credentials the right " + rightFor(operation))
	case "RequestTimeTooSkewed", "RequestExpired":
		return refused("the clocks of this machine and of the server differ too much; synchronise " +
			"them")
	case "AuthorizationHeaderMalformed", "InvalidRegion", "PermanentRedirect", "TemporaryRedirect",
		"Redirect", "IllegalLocationConstraintException":
		advice := "give the region of the bucket as region=... in the URL"
		if response.Region != "" {
			advice = "give region=" + response.Region + " in the URL"
		}
		return refused(advice)
	case "ConditionalRequestConflict", "OperationAborted", "BadDigest", "InvalidDigest",
		"XAmzContentSHA256Mismatch", "IncompleteBody":
		return notDone
	case "RequestTimeout", "SlowDown", "SlowDownRead", "SlowDownWrite", "Throttling",
		"ThrottlingException", "RequestLimitExceeded", "RequestThrottled", "InternalError",
		"ServiceUnavailable":
		return lostAnswer
	case "QuotaExceeded", "XMinioAdminBucketQuotaExceeded", "XMinioStorageFull", "InsufficientStorage",
		"TotalSizeExceeded":
		return verdict{class: ErrFull,
			advice: "make space there, raise the quota, or give another target"}
	case "NotImplemented":
		if operation == "create" {
			return refused(noConditions)
		}
	}
	switch status := response.StatusCode; {
	case status == http.StatusInsufficientStorage:
		return verdict{class: ErrFull, advice: "make space there, or give another target"}
	case status == http.StatusNotImplemented && operation == "create":
		return refused(noConditions)
	case status >= 500, status == http.StatusRequestTimeout, status == http.StatusTooManyRequests,
		status == 499, // nginx: the client has closed the connection
		status == 0:
		return lostAnswer
	case status >= 300 && status < 400:
		return refused("give the region of the bucket as region=... in the URL, or correct the endpoint")
	case status == http.StatusForbidden, status == http.StatusUnauthorized:
		return refused("give the user of the credentials the right " + rightFor(operation))
	}
	return refused("")
}

const noConditions = "the server does not support conditional writes (If-None-Match), by which " +
	"one " +
	"of several writers wins; use a newer version of it, or another one"

// rightFor names the permission that an operation needs, in the words of AWS.
func rightFor(operation string) string {
	switch operation {
	case "get":
		return "s3:GetObject"
	case "list":
		return "s3:ListBucket"
	case "delete":
		return "s3:DeleteObject"
	}
	return "s3:PutObject"
}

// judgeConnection decides by the error of the connection if there was no answer. The library
// replaces some errors by texts.
func judgeConnection(err error) verdict {
	var (
		untrusted   x509.UnknownAuthorityError
		otherHost   x509.HostnameError
		certificate *tls.CertificateVerificationError
		record      tls.RecordHeaderError
	)
	switch {
	case errors.As(err, &untrusted), errors.As(err, &certificate), errors.As(err, &otherHost):
		return refused("the certificate of the server is not trusted: correct the endpoint, or add " +
			"the authority of the certificate to those that the machine trusts (SSL_CERT_FILE)")
	case errors.As(err, &record), strings.Contains(err.Error(), "gave HTTP response to HTTPS client"):
		return refused("the server does not speak TLS: correct the endpoint; http:// means without TLS")
	case errors.Is(err, errNoCredentials):
		// The service that provides the credentials of a machine's role may fail temporarily.
		return notDone
	}
	return lostAnswer
}
