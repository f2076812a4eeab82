// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
)

// maxRequest is the limit of controller-runtime for a request, in bytes.
const maxRequest = 7 << 20

// tooDeep is the error message. JSON decoding allows 10,000 levels. The request and the managed fields of the
// object, which repeat its structure, use some of them.
const tooDeep = "the object is nested too deeply to be validated, more than 10,000 levels with its managed fields: " +
	"make spec of bootstrapSpec and of infrastructureSpec flatter"

// rejectUndecodable rejects a request that cannot be decoded, with the UID of the request. controller-runtime rejects
// it without a UID, and the API server then only reports that the UIDs differ.
func rejectUndecodable(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(io.LimitReader(r.Body, maxRequest+1))
		if uid := uidOf(body); err == nil && uid != "" && !json.Valid(body) {
			reject(w, r, uid)
			return
		}
		r.Body = struct {
			io.Reader
			io.Closer
		}{io.MultiReader(bytes.NewReader(body), r.Body), r.Body}
		next.ServeHTTP(w, r)
	})
}

func reject(w http.ResponseWriter, r *http.Request, uid types.UID) {
	answer := admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "AdmissionReview"},
		Response: &admissionv1.AdmissionResponse{UID: uid, Result: &metav1.Status{
			Status: metav1.StatusFailure, Reason: metav1.StatusReasonBadRequest, Code: http.StatusBadRequest, Message: tooDeep,
		}},
	}
	if err := json.NewEncoder(w).Encode(answer); err != nil {
		ctrl.LoggerFrom(r.Context()).Error(err, "Answering API server")
	}
}

// uidOf reads request.uid from the start of an AdmissionReview, however deeply the other fields are nested. It is
// empty if there is none.
func uidOf(body []byte) types.UID {
	d := json.NewDecoder(bytes.NewReader(body))
	if !seekField(d, "request") || !seekField(d, "uid") {
		return ""
	}
	var uid types.UID
	if err := d.Decode(&uid); err != nil {
		return ""
	}
	return uid
}

// seekField reads up to the value of a field of the next object in d. It skips fields that are strings, numbers or
// shallow.
func seekField(d *json.Decoder, field string) bool {
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return false
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return false
		}
		if name == field {
			return true
		}
		var skipped json.RawMessage
		if err := d.Decode(&skipped); err != nil {
			return false
		}
	}
	return false
}
