// The gateway's last requests, kept up to date by asking for the newer ones only.
import { get } from './api.js';

const kMost = 1000;

export class RequestFeed {
  constructor() {
    this.requests = [];  // oldest first
    this.last = 0;
  }

  // The requests that are new, oldest first; null if all are others, as the gateway began anew.
  async update() {
    const { requests, newest } = await get(`/v1/requests?limit=${kMost}&after=${this.last}`);
    if (newest < this.last) {
      this.requests = [];
      this.last = 0;
      await this.update();
      return null;
    }
    // One that came while the answer was made may be newer than `newest`.
    this.last = Math.max(newest, requests[0]?.number ?? 0);
    const fresh = requests.reverse();
    this.requests = [...this.requests, ...fresh].slice(-kMost);
    return fresh;
  }
}
